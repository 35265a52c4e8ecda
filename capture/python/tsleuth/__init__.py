"""Tensor Sleuth for Python: capture the tensors of a run, and compare two of them.

    with tsleuth.capture(model, "ref.safetensors"):
        model(**inputs)

    print(tsleuth.compare("ref.safetensors", "mine.safetensors"))
"""
from .program import Explanation, ProgramError, Report, compare, explain
from .session import Capture, capture, tap
from .writer import TraceError, TraceFile

__version__ = "0.1.0"
__all__ = ["capture", "tap", "compare", "explain", "Capture", "Report", "Explanation", "ProgramError", "TraceError",
           "TraceFile"]
