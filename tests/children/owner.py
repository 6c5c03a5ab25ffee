"""An app with a worker whose child runs; it prints the child's pid, then waits to be killed.
python -m tests.children.owner RUNG"""

import sys
import time

from kernels.jobs.job import Request
from kernels.jobs.worker import Worker

worker = Worker(module="tests.children.acts")
job = worker.submit(Request((sys.argv[1],), None))
while not job.text.startswith("verifying") and not job.done:
    time.sleep(0.01)
print(worker._child.pid, flush=True)
time.sleep(3600)
