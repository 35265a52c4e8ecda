"""python -m tsleuth run script.py: captures a script as it is."""
import argparse
import os
import runpy
import sys

from . import capture


def _parser():
    parser = argparse.ArgumentParser(prog="python -m tsleuth", description="Captures the tensors of a script.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a script and capture every torch module that it calls, and its taps")
    run.add_argument("-o", "--output", default="trace.safetensors", metavar="FILE",
                     help="the trace (default: trace.safetensors)")
    run.add_argument("--include", action="append", metavar="RE", help="only tensors whose name matches; repeatable")
    run.add_argument("--exclude", action="append", metavar="RE", help="not those; repeatable")
    run.add_argument("--inputs", action="store_true", help="inputs of modules as well")
    run.add_argument("--gradients", action="store_true", help="gradients as well")
    run.add_argument("--functions", action="store_true", help="rotary and attention functions as well")
    run.add_argument("--overwrite", action="store_true", help="replace a file that is not a trace")
    run.add_argument("-m", dest="module", action="store_true", help="the script is the name of a module")
    run.add_argument("script", help="what to run, and its arguments")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def main():
    options = _parser().parse_args()
    try:
        import torch  # noqa: F401  the hooks need it before the script does
    except ImportError:
        pass
    sys.argv = [options.script, *options.arguments]
    trace = capture(None, options.output, include=options.include, exclude=options.exclude, inputs=options.inputs,
                    gradients=options.gradients, functions=options.functions, overwrite=options.overwrite)
    try:
        trace.start()
    except OSError as error:
        print(f"tsleuth: {error}", file=sys.stderr)
        return 3
    try:
        if options.module:
            sys.path.insert(0, os.getcwd())
            runpy.run_module(options.script, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, os.path.dirname(os.path.abspath(options.script)))
            runpy.run_path(options.script, run_name="__main__")
    finally:
        trace.stop()
        print(f"tsleuth: {trace.count} tensors in {trace.path}", file=sys.stderr)
    return 3 if trace.error else 0


if __name__ == "__main__":
    sys.exit(main())
