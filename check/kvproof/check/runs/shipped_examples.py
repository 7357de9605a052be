"""Where the examples are: in the installed package, or in the checkout from which it runs."""

from pathlib import Path

CHECK = Path(__file__).resolve().parents[1]
SHIPPED, OF_CHECKOUT = CHECK / "examples", CHECK.parents[2] / "examples"  # the wheel has the folder of the checkout


def source_folder() -> Path:
    """The folder of the installed package, or of the checkout from which it runs."""
    return SHIPPED if SHIPPED.is_dir() else OF_CHECKOUT
