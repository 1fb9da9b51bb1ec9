"""Frameworks of jobs: the platform's own runtime, PaddlePaddle, PyTorch, or any program.

``definitions.py`` has one row for each framework, ``paddle.py`` and ``torch.py`` the environment variables with the
addresses of the other processes, and ``peer_env.py`` combines them for a plan. All modules are pure. The counterpart,
``runtime/launch.py``, runs beside the user's code, adds derived variables, and waits for servers.
"""
