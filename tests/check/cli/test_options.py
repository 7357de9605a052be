"""Every option that is a number, of every command."""

from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import pytest
import typer
from typer.testing import CliRunner

from kvproof.check.cli import options
from kvproof.check.cli.app import app

NO_NUMBERS = ("nan", "inf", "-inf", "1e999", "-1", "9" * 30, "ten", "")


def numbers() -> Iterator[tuple[str, str]]:
    """The command and the name of each option that is a number."""
    callbacks = [command.callback for command in app.registered_commands]
    groups = (group.typer_instance.registered_callback for group in app.registered_groups if group.typer_instance)
    callbacks += [group.callback for group in groups if group is not None]
    for callback in callbacks:
        assert callback is not None
        for hint in get_type_hints(callback, include_extras=True).values():
            kind, *marks = get_args(hint) or (hint,)
            if any(number in (kind, *get_args(kind)) for number in (int, float)):
                yield str(callback.__name__), marks[0].default  # where typer keeps the name


def test_the_numbers_of_every_command_are_known() -> None:
    found = set(numbers())
    assert {name for name, _ in found} >= {"verify", "prove", "explore", "hunt", "device", "record"}
    assert {
        ("prove", "--timeout"),
        ("prove", "--seed"),
        ("explore", "--jobs"),
        ("explore", "--blocks"),
        ("record", "--steps"),
    } < found


@pytest.mark.parametrize(("command", "option"), sorted(numbers()))
@pytest.mark.parametrize("value", NO_NUMBERS)
def test_what_is_no_number_in_its_range_is_a_mistake_of_the_caller(command: str, option: str, value: str) -> None:
    done = CliRunner().invoke(app, [command, option, value])
    assert done.exit_code == 2
    assert f"Invalid value for '{option}'" in done.stderr


def test_nan_is_refused_even_if_every_comparison_lets_it_pass() -> None:
    callback: Any = options.seconds_option("--budget", "").callback
    assert callback(1.5) == 1.5
    assert callback(None) is None
    with pytest.raises(typer.BadParameter, match="nan is not a number of seconds"):
        callback(float("nan"))
