"""The command line that the scripts share which score models of the transformers library (real_models.py, any_models.py)."""
import argparse
import concurrent.futures
import os
import tempfile
import time
from pathlib import Path


def score(about, models, runs_of, compare):
    """Rows of what `compare` says of each run that `runs_of` makes of the models that are asked for."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", default=",".join(models))
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no further model after this long")
    parser.add_argument("--keep", help="folder for the traces; those that were judged well are removed")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        folder, began, waiting = Path(given.keep or scratch), time.monotonic(), []
        folder.mkdir(exist_ok=True)
        for name in given.models.split(","):
            if time.monotonic() - began > given.seconds:
                continue
            try:
                for made in runs_of(name, given.seed, folder):
                    waiting.append(pool.submit(compare, given.binary, *made))
            except (ValueError, RuntimeError, KeyError, TypeError, AttributeError) as error:
                print(f"# {name}: {type(error).__name__}: {str(error)[:90]}")  # not in this release, or not so
        return [job.result() for job in waiting]


def share(rows, key="good", wanted=True):
    """So many of all."""
    return f"{sum(bool(row[key]) == wanted for row in rows)}/{len(rows)}"
