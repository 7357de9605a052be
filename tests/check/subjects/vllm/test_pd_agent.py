"""The agent that stands for NIXL's: which bytes a transfer copies, who is informed, and what it does not know."""

import msgspec
import pytest

from kvproof.check.protocol.fault_attribution import StandInError
from kvproof.check.protocol.pair import DECODE, PREFILL
from kvproof.check.protocol.wire import Copy, Message, Wire
from kvproof.check.subjects.loading.strict import require_known
from kvproof.check.subjects.vllm.pd_agent import Agent, base_of, message
from kvproof.check.subjects.vllm.pd_fakes import Later, NoAnswer, Socket, Turn


def agents(generations: list[int]) -> tuple[Wire, Agent, Agent]:
    """The agents of both sides, over one wire."""
    wire = Wire()
    return wire, Agent(wire, PREFILL, generations, 0), Agent(wire, DECODE, generations, 0)


def begun(operation: str, note: bytes | None = None) -> Wire:
    """What DECODE begins between its second block and PREFILL's third; blocks of 8 bytes, from 100 and from 500 on."""
    wire, prefill, decode = agents([0, 0])
    own = decode.prep_xfer_dlist("NIXL_INIT_AGENT", [(100, 8, 0, 8, 4)])  # of so many blocks, a step from each other
    peer = decode.add_remote_agent(prefill.get_agent_metadata())
    far = decode.prep_xfer_dlist(peer, [(500 + 8 * place, 8, 0) for place in range(4)])  # one by one
    handle = decode.make_prepped_xfer(operation, own, [1], far, [2], notif_msg=note)
    assert decode.transfer(handle) == "PROC"
    return wire


def test_a_read_copies_from_the_peer_and_a_write_to_it() -> None:
    assert begun("READ").transfers[1].copies == [Copy(516, 108, 8)]
    assert begun("WRITE").transfers[1].copies == [Copy(108, 516, 8)]


def test_the_note_of_a_transfer_is_for_its_peer_and_says_which_offer_is_done() -> None:
    assert begun("READ", b"7:1").transfers[1].note == Message(PREFILL, "done", (7,), b"7:1", 0, (0,))


def test_a_notification_says_what_it_is_about() -> None:
    beat = message("0.5.2", b"HB:3,4", 1)
    assert beat == Message(PREFILL, "beat", (3, 4), b"HB:3,4", rank=2)
    registered = b"PUSH_REG:" + msgspec.msgpack.encode({"request_id": "3-0000000a"})
    assert message("0.5.0", registered, 1) == Message(PREFILL, "registration", (3,), registered)
    assert message("1.0.0", b"3-0000000a:1", 1).kind == "written"
    assert base_of("3-0000000a") == 3


def test_an_agent_whose_engine_has_died_gets_nothing_and_gives_nothing() -> None:
    generations = [0, 0]
    wire, prefill, decode = agents(generations)
    own = decode.prep_xfer_dlist("NIXL_INIT_AGENT", [(100, 8, 0)])
    peer = decode.add_remote_agent(prefill.get_agent_metadata())
    far = decode.prep_xfer_dlist(peer, [(500, 8, 0)])
    handle = decode.make_prepped_xfer("READ", own, [0], far, [0], notif_msg=b"7:1")
    generations[PREFILL] += 1
    assert decode.transfer(handle) == decode.check_xfer_state(handle) == "ERR"
    decode.send_notif(peer, b"7:1")
    assert (wire.transfers, wire.messages) == ({}, {})


def test_what_a_stand_in_does_not_know_is_a_fault_of_kvproof_even_if_the_engine_goes_on() -> None:
    _, prefill, _ = agents([0, 0])
    with pytest.raises(AttributeError):
        prefill.make_connection()
    with pytest.raises(StandInError, match=r"Agent\.make_connection"):
        require_known()
    require_known()  # once


def test_a_job_is_done_when_the_judge_says_so_and_what_fails_is_in_its_future() -> None:
    executor = Later()
    first, second = executor.submit(int, "7"), executor.submit(int, "8")
    executor.run(1, fails=True)
    assert not first.done()
    assert isinstance(second.exception(), NoAnswer)
    executor.run(0, fails=False)
    assert first.result() == 7
    assert executor.jobs == []


def test_a_socket_to_nobody_has_no_answer() -> None:
    asked = msgspec.msgpack.encode((b"get_meta_msg", 0, 0))
    socket = Socket({(0, 0): b"answer"}, now=5.0)
    socket.send(asked)
    assert socket.recv_multipart() == [b"answer", msgspec.msgpack.encode(5.0)]
    with pytest.raises(NoAnswer):
        Socket(None, now=5.0).recv_multipart()


def test_a_loop_goes_round_once_in_a_turn() -> None:
    stop = Turn()
    assert stop.is_set()
    stop.begin()
    assert [stop.is_set(), stop.is_set()] == [False, True]
