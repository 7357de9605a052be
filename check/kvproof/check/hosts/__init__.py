"""Hosts: the only place where foreign code, or work in another process, is run.

Theory of operation
-------------------
A host is *started*, *asked* within a limit, tells *how it ended*, and is *ended*, with everything that it has started.
Nothing that it does holds this process up, and nothing that it sends is believed without a check. There are:

- forks of a subject (`fork_client`, `fork_server`): a fresh process for each run, asked by messages over a socket;
- programs that answer lines (`line_host`): a manager behind a pipe, an executor of the data plane. A supervisor starts
  them (`supervised_command`, `descendants`), so that nothing of them is left;
- processes of kvproof's own code (`worker_process`): a pool of them does units of work (`pool`), an actor holds an
  object between calls;
- the same elsewhere: the workers and actors of a Ray cluster (`on_ray`, `ray_cluster`).

What they have in common is here once: the limits of a call, which do not count the time in which a process waits for a
processor, and memory (`time_limit`), signals (`interrupt`), what a process prints (`output`), and framed messages
(`channel`). Other programs, such as pip, are run by `program`, which also words how a process has ended, and starts the
modules of kvproof without a look into the working folder (`begin`); `git` asks about a repository.
`tests/test_layout.py` holds that no other folder starts or signals a process.
"""
