"""Cells that several tests run: plain Python, without heavy libraries."""

QUICK = """from jupyter_ddl import choice, loguniform, report

lr = loguniform(1e-4, 1e-1, default=1e-2)
act = choice("relu", "tanh")
for epoch in range(3):
    report(step=epoch, val_acc=0.5 - abs(lr - 0.01) + epoch * 0.1)
print("done", lr)
model = {"w": lr}
"""

STEADY = """import time
from jupyter_ddl import report, uniform

x = uniform(0.0, 1.0)
for step in range(600):
    time.sleep(0.05)
    report(step=step, acc=x)
"""
"""Reports every 0.05 s for half a minute."""

SILENT = """import time
from jupyter_ddl import report, uniform

x = uniform(0.0, 1.0)
time.sleep(60)
report(step=0, acc=x)
"""
"""Reports once, after a minute."""
