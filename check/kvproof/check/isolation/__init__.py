"""Isolation: a subject that is not ours lives in a process of its own, and cannot end ours.

Theory of operation
-------------------
A *template* process imports the subject once, makes one, and tells what it is; from then on it only forks. A *fork* is
a fresh subject for a few milliseconds: nothing that an earlier run left in the modules of the engine is in it. A fork
does one of two things for us:

- *calls*: one message each way per call. The subject then looks like any other (`RemoteSubject`), so whatever confirms,
  shrinks and tells a finding works on it unchanged. A call that outlives its limit, or ends the process, is a finding
  about that call; the next `open` gets a new fork.
- *searches*: a whole walk or exploration, with the judge in the fork beside the subject, at the speed of one process.
  Every operation is written to a *journal* in shared memory before it is done. When the fork dies or stops advancing,
  the journal has the very run; it is done again call by call, which names the call at fault.

The subject's standard output goes to our standard error, so that a document on ours stays one. Its address space is
limited to what it had when it was made, and an allowance. When we end, however we end, the template sees the end of its
socket, and ends its forks and itself.
"""
