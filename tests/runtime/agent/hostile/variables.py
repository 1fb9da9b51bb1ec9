"""Prints where sitecustomize was loaded, which the job's PYTHONPATH leads to."""

import os

print(open(os.path.join(os.environ["REGATTA_WORK_DIR"], "loaded")).read())
