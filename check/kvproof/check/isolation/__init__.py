"""Isolation: run a foreign subject in a separate process, so that it cannot end this one.

Theory of operation
-------------------
A *fork server* process imports the subject once, creates one to learn its capabilities, and from then on only forks. A
*fork* costs a few milliseconds and has a fresh subject: it contains nothing that an earlier run left in the modules of
the engine. A fork has one of two uses:

- *calls*: each call is one message in each direction. The subject then looks like any other (`RemoteSubject`), so the
  code that confirms, shrinks and reports a finding works without changes. A call that exceeds its time limit or ends
  the process is a finding about this call; the next `open` gets a new fork.
- *searches*: a complete walk or exhaustive search, with the judge and the subject in the same fork, at the speed of one
  process. Each operation is written to a *journal* in shared memory before it is executed. If the fork dies or hangs,
  the journal contains the run up to that point. The run is then repeated call by call, which identifies the call. The
  journal also has what the runs before have reached, which a walk keeps if the process was only slow.

The output of the subject is printed on standard error, up to a limit (`hosts.output`), so that a document on
standard output stays valid.
The address space of a fork is limited to what it had at its start plus an allowance. When the parent process ends for
any reason, the fork server sees the end of its socket, kills its forks and ends.
"""
