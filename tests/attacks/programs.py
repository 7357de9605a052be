"""Hostile programs behind a pipe. Each is a right manager, written in Python, until it does something else.

`hello` replaces the first line. `at` runs a piece of Python when a call comes, before the answer; `say` writes a line,
and `answer` is what would be answered next.
"""

# ruff: noqa: E501 (a row of a table is one attack)

from textwrap import dedent, indent

from tests.attacks.case import ENOUGH_SECONDS, OK, REFUTED, USAGE, Attack

FILE = "program.py"
ARGUMENTS = (
    *("verify", "--subject", f"pipe:python3 {FILE}", "--judges", "walker", "--effort", "600", "--seed", "1"),
    *("--budget", f"{ENOUGH_SECONDS:g}", "--out", "out"),
)
MANAGER = """
import json, os, resource, signal, subprocess, sys, threading, time
from math import ceil

class Manager:
    def open(self, num_gpu_blocks, block_size, **others):
        self.free, self.size, self.refs = list(range(num_gpu_blocks)), block_size, [0] * num_gpu_blocks
        self.of, self.tokens = {}, {}
    def take(self):
        block = self.free.pop()
        self.refs[block] = 1
        return block
    def can_allocate(self, tokens, **others):
        return ceil(len(tokens) / self.size) <= len(self.free)
    def allocate(self, seq, tokens, **others):
        self.of[seq] = [self.take() for _ in range(ceil(len(tokens) / self.size))]
        self.tokens[seq] = len(tokens)
    def can_append(self, group, seqs=(), **others):
        return len(self.of) <= len(self.free)
    def append(self, seq, num_tokens=1, **others):
        table, index = self.of[seq], self.tokens[seq] // self.size
        self.tokens[seq] += 1
        if index == len(table):
            table.append(self.take())
        elif self.refs[table[index]] > 1:
            old, table[index] = table[index], self.take()
            self.refs[old] -= 1
            return [[old, table[index]]]
        return []
    def share(self, parent, child):
        self.of[child], self.tokens[child] = list(self.of[parent]), self.tokens[parent]
        for block in self.of[child]:
            self.refs[block] += 1
    def release(self, seq):
        for block in self.of.pop(seq):
            self.refs[block] -= 1
            if not self.refs[block]:
                self.free.append(block)
    def observe(self):
        return {"tables": self.of, "num_free": len(self.free), "refcounts": self.refs, "free_ids": self.free}

def say(value):
    sys.stdout.write((value if isinstance(value, str) else json.dumps(value)) + "\\n")
    sys.stdout.flush()

manager = Manager()
"""
LOOP = """
for line in sys.stdin:
    request = json.loads(line)
    call = request.pop("call")
    answer = {"answer": getattr(manager, call)(**request)}
    if call == CALL:
CODE
    say(answer)
"""
HELLO = '{"kvproof": 1, "name": "program", "capabilities": {"fork": true}}'


def _program(hello: str, call: str, code: str) -> str:
    loop = LOOP.replace("CALL", repr(call)).replace("CODE", indent(dedent(code).strip(), " " * 8))
    return f"{MANAGER}say({hello!r})\n{loop}"


def at(call: str, name: str, code: str, exit_code: int | tuple[int, ...], words: str = "") -> Attack:
    """A program that does something when a call comes."""
    return Attack(f"{call}: {name}", _program(HELLO, call, code), exit_code, words)


def hello(name: str, line: str, words: str = "", exit_code: int | tuple[int, ...] = USAGE) -> Attack:
    """A program with another first line."""
    return Attack(f"hello: {name}", _program(line, "none", "pass"), exit_code, words)


def begins(name: str, code: str, words: str = "", exit_code: int | tuple[int, ...] = USAGE) -> Attack:
    """A program that does something before its first line."""
    return Attack(f"begins: {name}", f"{MANAGER}{dedent(code)}\n{_program(HELLO, 'none', 'pass')}", exit_code, words)


ATTACKS = [
    Attack("right", _program(HELLO, "none", "pass"), OK),
    hello("no JSON", "hello", "not JSON"),
    hello("empty", "", "not JSON"),
    hello("a list", "[1]"),
    hello("another version", '{"kvproof": 2, "name": "x"}', "protocol 2"),
    hello("a version of 10^40", '{"kvproof": 1' + "0" * 40 + ', "name": "x"}'),
    hello("no name", '{"kvproof": 1}', "name"),
    hello("a name that is a number", '{"kvproof": 1, "name": 7}'),
    hello("control characters", '{"kvproof": 1, "name": "\\u001b[2J\\n::error::x", "capabilities": {"fork": true}}', "", OK),
    hello("half characters", '{"kvproof": 1, "name": "\\ud800", "capabilities": {"fork": true}}', "", USAGE),
    hello("an unknown capability", '{"kvproof": 1, "name": "x", "capabilities": {"forks": true}}', "forks"),
    hello("a capability of another type", '{"kvproof": 1, "name": "x", "capabilities": {"fork": "yes"}}'),
    hello("a capability of 10^40", '{"kvproof": 1, "name": "x", "capabilities": {"lost_hits": 1' + "0" * 40 + "}}", "", OK),
    hello("assumptions that are none", '{"kvproof": 1, "name": "x", "assumptions": [1]}'),
    hello("deep", "[" * 100_000),
    hello("a megabyte", '{"kvproof": 1, "name": "' + "x" * 1_000_000 + '"}', "", OK),
    begins("ends", "sys.exit(0)", "exit code 0"),
    begins("ends by a signal", "os.kill(os.getpid(), 11)", "SIGSEGV"),
    begins("says nothing", "time.sleep(100)", "written nothing"),
    begins("closes its output", "os.close(1); time.sleep(100)"),
    begins("closes its input", "os.close(0)", "", REFUTED),
    begins("writes without end", "while True: os.write(1, b'x' * 65536)"),
    begins("writes two lines", "say(HELLO) if 'HELLO' in globals() else say('{\"kvproof\":1,\"name\":\"x\"}')"),
    begins("writes megabytes of errors", "sys.stderr.write('y' * 3_000_000)", "", OK),
    begins("writes commands as errors", "sys.stderr.write('::error::x\\n\\x1b[2J\\n')", "", OK),
    begins("daemons", "subprocess.Popen(['sleep', '100'], start_new_session=True)", "", OK),
    at("share", "no JSON", "say('nothing'); continue", USAGE, "not JSON"),
    at("share", "two lines", "say(answer)", USAGE, "more than one line"),
    at("share", "a second line, late", "say(answer); time.sleep(0.05); say(answer); continue", USAGE, "more than one line"),
    at("share", "a second line, at the next call", "say(answer); sys.stdin.readline(); say(answer)", USAGE, "more than one line"),
    at("share", "half a line", "sys.stdout.write('{'); sys.stdout.flush(); time.sleep(100)", REFUTED, "total-calls"),
    at("share", "a line without end", "while True: os.write(1, b'x' * 65536)", USAGE),
    at("share", "deep", "say('[' * 100_000); continue", USAGE),
    at("share", "bytes that are no text", "os.write(1, b'\\xff\\xfe\\n'); continue", USAGE),
    at("share", "NUL", "os.write(1, b'\\0\\n'); continue", USAGE),
    at("share", "NaN", "say('{\"answer\": NaN}'); continue", USAGE),
    at("share", "an empty object", "say('{}'); continue", USAGE),
    at("share", "an unknown field", "say({'answer': None, 'more': 1}); continue", USAGE),
    at("share", "two answers in one object", "say('{\"answer\": null, \"answer\": 1}'); continue", USAGE),
    at("share", "an error", "say({'error': 'lost', 'type': 'KeyError'}); continue", REFUTED, "KeyError"),
    at("share", "an error whose type is none", "say({'error': 'x', 'type': 'a\\0b'}); continue", USAGE),
    at("share", "an error without type", "say({'error': 'x'}); continue", REFUTED),
    at("share", "an error of a megabyte", "say({'error': 'x' * 1_000_000, 'type': 'E'}); continue", REFUTED),
    at("share", "an error with commands", "say({'error': '\\x1b[2J\\n::error::x', 'type': 'E'}); continue", REFUTED),
    at("share", "unsupported in the middle", "say({'unsupported': 'no'}); continue", REFUTED),
    at("share", "ends", "os._exit(3)", REFUTED, "exit code 3"),
    at("share", "SIGSEGV", "os.kill(os.getpid(), 11)", REFUTED, "SIGSEGV"),
    at("share", "SIGSTOP", "os.kill(os.getpid(), signal.SIGSTOP)", REFUTED, "total-calls"),
    at("share", "sleeps", "time.sleep(100)", REFUTED, "total-calls"),
    at("share", "loops", "while True: pass", REFUTED, "total-calls"),
    at("share", "memory", "kept = []\nwhile True: kept.append(b'x' * (1 << 26))", REFUTED, "memory"),
    at("share", "answers, and ends", "say(answer); os._exit(0)", REFUTED),
    at("share", "closes its output", "os.close(1); time.sleep(100)", REFUTED),
    at("share", "kills kvproof's group", "os.killpg(0, 9)", REFUTED),
    at("share", "a child that holds the pipe", "subprocess.Popen(['sleep', '100']); os._exit(0)", REFUTED),
    at("share", "a thread that writes later", "threading.Timer(0.05, say, ['{}']).start()", USAGE),
    at("share", "an answer of half a character", "say('{\"answer\": \"\\\\ud800\"}'); continue", USAGE),
    at("share", "an error of half a character", "say('{\"error\": \"\\\\ud800\", \"type\": \"E\"}'); continue", USAGE),
    at("share", "a number of 5,000 digits", "say('{\"answer\": ' + '9' * 5000 + '}'); continue", USAGE),
    at("share", "a number of 10^999", "say('{\"answer\": 1e999}'); continue", USAGE),
    at("share", "a byte order mark", "os.write(1, b'\\xef\\xbb\\xbf{\"answer\": null}\\n'); continue", USAGE),
    at("share", "UTF-16", "os.write(1, '{\"answer\": null}\\n'.encode('utf-16')); continue", USAGE),
    at("share", "answers byte by byte", "for byte in json.dumps(answer).encode(): os.write(1, bytes([byte]))\nos.write(1, b'\\n'); continue", OK),
    at("share", "a handler for every signal", "for number in (1, 2, 13, 14, 15): signal.signal(number, signal.SIG_IGN)", OK),
    at("share", "closes its input", "os.close(0)", REFUTED),
    at("observe", "the same key twice", "say('{\"answer\": {\"tables\": {}, \"tables\": {\"1\": [0]}, \"num_free\": 1}}'); continue", REFUTED),  # the last counts, as in every reader of JSON
    at("observe", "keys that are one number", "answer['answer'] |= {'tables': {'1': [0], '01': [1]}}", USAGE),
    at("observe", "no tables", "answer = {'answer': {'num_free': 1}}", USAGE, "tables"),
    at("observe", "tables of texts", "answer = {'answer': {'tables': {'1': ['a']}, 'num_free': 1}}", USAGE),
    at("observe", "keys that are no numbers", "answer = {'answer': {'tables': {'one': [0]}, 'num_free': 1}}", USAGE),
    at("observe", "a block of 10^40", "answer = {'answer': {'tables': {'1': [10**40]}, 'num_free': 1}}", REFUTED),
    at("observe", "a negative block", "answer = {'answer': {'tables': {'1': [-9]}, 'num_free': 1}}", REFUTED),
    at("observe", "a million blocks", "answer = {'answer': {'tables': {'1': [0] * 1_000_000}, 'num_free': 1}}", USAGE, "a line of more than"),
    at("observe", "too few refcounts", "answer['answer'] |= {'refcounts': []}", USAGE),
    at("can_allocate", "a text", "answer = {'answer': 'yes'}", USAGE),
    at("can_allocate", "never", "answer = {'answer': 'never'}", USAGE),
    at("append", "copies of one", "answer = {'answer': [[1]]}", USAGE),
    at("append", "foreign copies", "answer = {'answer': [[-7, 900]]}", REFUTED),
    at("release", "a number", "answer = {'answer': 7}", USAGE),
    at("release", "nothing is released", "manager.free = manager.free[:1]", REFUTED),
]  # fmt: skip
