"""Prints from where sitecustomize was loaded, to which the job's PYTHONPATH leads."""

import os

print(open(os.path.join(os.environ["REGATTA_WORK_DIR"], "loaded")).read())
