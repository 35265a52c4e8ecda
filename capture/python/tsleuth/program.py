"""Owns the way to the tsleuth program: finding it, running it, and showing what it said."""
import html
import json
import os
import shutil
import subprocess
from pathlib import Path

MOST_ROWS = 40


class ProgramError(RuntimeError):
    """The program is not there, or could not read its input."""


def find_program():
    """The tsleuth program: $TSLEUTH, on the PATH, or built beside this package."""
    given = os.environ.get("TSLEUTH")
    if given:
        return given
    found = shutil.which("tsleuth")
    if found:
        return found
    for folder in Path(__file__).resolve().parents[2:4]:
        built = folder / "build" / "tsleuth"
        if built.is_file() and os.access(built, os.X_OK):
            return str(built)
    raise ProgramError("the tsleuth program was not found; put it on the PATH, or its path into the environment "
                       "variable TSLEUTH")


def _words(options):
    """rtol=1e-3, exact=True, rule=["a: cosine > 0.9", ...] -> words of a command line."""
    words = []
    for key, value in options.items():
        option = "--" + key.replace("_", "-")
        if value is True:
            words.append(option)
        elif isinstance(value, (list, tuple)):
            for one in value:
                words += [option, str(one)]
        elif value is not False and value is not None:
            words += [option, os.fspath(value) if hasattr(value, "__fspath__") else str(value)]
    return words


def _run(command, positions, options):
    words = [find_program(), command, *map(os.fspath, positions), *_words(options), "--json", "-"]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        raise ProgramError(f"{words[0]} could not be started: {error}") from error
    if done.returncode not in (0, 1, 2):
        said = done.stderr.decode("utf-8", "replace").strip()
        raise ProgramError(said or f"{' '.join(words)} ended with status {done.returncode}")
    try:
        return json.loads(done.stdout)
    except ValueError as error:
        raise ProgramError(f"{' '.join(words)} did not write JSON: {error}") from error


def _number(value):
    if isinstance(value, str):
        return value
    return "" if value is None else f"{value:.3g}"


def _causes(causes):
    for cause in causes:
        yield f"{cause.get('id')} ({cause.get('confidence', 0):.2f}): {cause.get('summary')}"
        if cause.get("check"):
            yield f"  check {cause['check']}"


class Report:
    """What `tsleuth compare` found. print() it, or let a notebook show it."""

    COLUMNS = ("", "tensor", "shape", "verdict", "error", "roundings", "worst")

    def __init__(self, data):
        self.data = data
        self.verdict = data.get("verdict")
        self.summary = data.get("summary", "")
        self.first_divergence = data.get("first_divergence")
        self.causes = data.get("causes") or []
        self.tensors = data.get("tensors") or []
        self.unmatched_a, self.unmatched_b = data.get("unmatched_a") or [], data.get("unmatched_b") or []
        self.skipped = data.get("skipped") or []

    @property
    def matches(self):
        return self.verdict == "match"

    def __bool__(self):
        return self.matches

    def __len__(self):
        return len(self.tensors)

    def __iter__(self):
        return iter(self.tensors)

    def __getitem__(self, name):
        """The entry of one tensor, by its name on either side."""
        for tensor in self.tensors:
            if name in (tensor.get("name"), tensor.get("name_b")):
                return tensor
        raise KeyError(name)

    def _chosen(self):
        """The rows worth a line: those that differ, and the ones around the first."""
        first = (self.first_divergence or {}).get("index")
        chosen = [index for index, tensor in enumerate(self.tensors)
                  if tensor.get("verdict") in ("differs", "cannot tell") or first is not None and index == first - 1]
        if not chosen:
            chosen = list(range(len(self.tensors)))
        return chosen[:MOST_ROWS], max(0, len(chosen) - MOST_ROWS)

    def _row(self, tensor):
        worst = ""
        if tensor.get("max_abs") and tensor.get("worst") is not None:
            worst = f"{_number(tensor['max_abs'])} at {json.dumps(tensor.get('worst')).replace(' ', '')}"
        return ("✗" if tensor.get("verdict") == "differs" else "?" if tensor.get("verdict") == "cannot tell" else "",
                tensor.get("name") or tensor.get("name_b") or "",
                json.dumps(tensor.get("shape")).replace(" ", ""), str(tensor.get("verdict")),
                _number(tensor.get("rel_l2")), _number(tensor.get("roundings")), worst)

    def _notes(self):
        for side, names in (("reference", self.unmatched_a), ("candidate", self.unmatched_b)):
            if names:
                listed = [one if isinstance(one, str) else str(one.get("name")) for one in names[:5]]
                yield f"only in the {side}: {', '.join(listed)}" + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        for skip in self.skipped[:5]:
            yield f"could not be read: {skip.get('path')}: {skip.get('reason')}"

    def __str__(self):
        chosen, more = self._chosen()
        rows = [self.COLUMNS] + [self._row(self.tensors[index]) for index in chosen]
        widths = [max(len(row[column]) for row in rows) for column in range(len(self.COLUMNS))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
        if more:
            lines.append(f"… {more} more")
        if self.first_divergence:
            lines += ["", f"first divergence: {self.first_divergence.get('name')}"]
            lines += [f"  {line}" for line in ([self.first_divergence["why"]] if self.first_divergence.get("why") else [])]
            lines += [f"  {line}" for line in _causes(self.causes)]
        lines += ["", *self._notes(), f"{self.verdict}: {self.summary}"]
        return "\n".join(lines)

    def __repr__(self):
        return f"<tsleuth report: {self.verdict}, {self.summary}>"

    def _repr_html_(self):
        chosen, more = self._chosen()
        text = html.escape
        parts = [f"<p><b>{text(str(self.verdict))}</b>: {text(str(self.summary))}</p>"]
        if self.first_divergence:
            parts.append(f"<p>first divergence: <code>{text(str(self.first_divergence.get('name')))}</code></p><ul>"
                         + "".join(f"<li>{text(line)}</li>" for line in _causes(self.causes)) + "</ul>")
        parts.append("<table><tr>" + "".join(f"<th>{text(name)}</th>" for name in self.COLUMNS) + "</tr>")
        for index in chosen:
            parts.append("<tr>" + "".join(f"<td>{text(cell)}</td>" for cell in self._row(self.tensors[index])) + "</tr>")
        parts.append("</table>")
        parts += [f"<p>{text(note)}</p>" for note in self._notes()]
        if more:
            parts.append(f"<p>… {more} more</p>")
        return "".join(parts)


class Explanation:
    """What `tsleuth explain` found about one tensor."""

    def __init__(self, data):
        self.data = data
        self.name = data.get("name")
        self.causes = data.get("causes") or []

    def __str__(self):
        lines = [f"{self.name}: relative error {_number(self.data.get('rel_l2'))}"]
        lines += [f"  {line}" for line in _causes(self.causes)] or ["  no cause was found"]
        return "\n".join(lines)

    def __repr__(self):
        return f"<tsleuth explanation of {self.name}: {', '.join(str(cause.get('id')) for cause in self.causes)}>"

    def _repr_html_(self):
        return (f"<p><code>{html.escape(str(self.name))}</code></p><ul>"
                + "".join(f"<li>{html.escape(line)}</li>" for line in _causes(self.causes)) + "</ul>")


def compare(a, b, **options):
    """Compares the reference `a` with the candidate `b`: files, folders or captures. Options as on the command line:
    compare(a, b, rtol=1e-3, exact=True, rule=["logits: cosine > 0.99"], html="report.html")."""
    return Report(_run("compare", (a, b), options))


def explain(a, b, name, **options):
    """Says why one tensor differs."""
    return Explanation(_run("explain", (a, b, name), options))
