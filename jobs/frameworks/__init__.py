"""What a job is written for: the platform's own runtime, PaddlePaddle, PyTorch, or any program.

``definitions.py`` says by one row each what is different, ``paddle.py`` and ``torch.py`` which variables tell a process
where the others are, ``peer_env.py`` puts them together for a plan. All of it is pure. ``runtime/launch.py`` is the
other end: it runs beside the user's code, adds what follows from the variables, and waits for servers.
"""
