"""HTTP gateway for training in any language: ``python -m runtime.gateway -- COMMAND...`` starts a program and serves
it.

The program finds the gateway's address, on this machine only, in REGATTA_GATEWAY. Errors are JSON: a stable ``code``
and a message ``why``.

    GET  /v1/task                        200 {"task", "pass", "epoch", "records", "chunks"}: a task, the same until it
                                         is reported; 204: retry after Retry-After seconds; 410: all work is done
    GET  /v1/records/TASK?format=csv     its records: a line each, label first; format=raw: u32 length and bytes each,
                                         little-endian (runtime/gateway/encodings.py)
    POST /v1/task/TASK/done              {"epoch", "metrics"?}; also /fail {"epoch", "why"} and /release {"epoch"};
                                         409 "stale": another trainer has it now
    POST /v1/params                      {"params": {NAME: {"shape", "dtype"?: "f4" | "f8", "values"?}},
                                          "opt"?: {"name": "SGD", "lr": 0.1}, "mode"?, "wire"?}; without values: zeros,
                                         or the job's values if another trainer was first
    GET  /v1/params/NAME?dtype=f4        the values: f4 or f8 little-endian, or csv, a line each
    POST /v1/params/NAME?op=push         the body is the gradient of one parameter, in any of the forms
    POST /v1/params/NAME?op=push_pull&n=128   the same, and makes the step of 128 samples: the gradients of all other
                                         parameters have been pushed; returns the new values
    POST /v1/tables                      {"name", "dim", "init"?: {"name": "Uniform", "scale": 0.05}, "opt"?, "seed"?}:
                                         a table of rows by id, after the parameters
    POST /v1/tables/NAME/pull            the body is ids, little-endian i8; returns a row of dim f4 for each. With
                                         ?dtype=csv ids come as text, and each row is a line
    POST /v1/tables/NAME/push            the body is n ids (i8), then n gradients of dim f4; with ?dtype=csv a line
                                         each, the id first. They belong to the step of the next push_pull
    POST /v1/report                      {"cost": 0.3}: points on the job's charts
    POST /v1/save?path=model.bin         {"saved": true} in the one trainer that was elected; writes the body, or
                                         without one the parameters as .npz

After SIGTERM every answer is 503 with Retry-After, and the assigned task is released. The program's exit code: 0
finished, 75 restart requested, else the assigned task has failed.
"""
