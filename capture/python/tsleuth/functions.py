"""Owns the functions between modules: rotary embeddings and attention are plain functions in most models, so their
results show in no module's output. While a capture runs they are replaced by ones that call them and keep the result."""
import functools
import importlib
import sys
import threading

ROTARY = {
    "apply_rotary_pos_emb": ("q_rope", "k_rope"),
    "apply_rotary_pos_emb_interleave": ("q_rope", "k_rope"),
    "apply_multimodal_rotary_pos_emb": ("q_rope", "k_rope"),
    "apply_rotary_emb": ("q_rope", "k_rope"),
    "apply_rotary_pos_emb_vision": ("q_rope", "k_rope"),
}
EAGER = ("eager_attention_forward",)
ATTENTION = ("attn_context", "attn_probs")
TABLE = "ALL_ATTENTION_FUNCTIONS"


class FunctionPatches:
    def __init__(self, capture, functions):
        self.capture = capture
        self.undo = []
        self.tables = []
        self.done = set()  # of modules whose functions are replaced
        self.known = functions is True
        self.local = threading.local()
        try:
            if self.known:
                self._torch_functions()
                self.refresh()
            else:
                named = functions if isinstance(functions, dict) else dict.fromkeys(functions)
                for function, outputs in named.items():
                    self._by_name(function, outputs)
        except BaseException:
            self.detach()
            raise

    def detach(self):
        for undo in reversed(self.undo):
            undo()
        self.undo = []

    # what is known

    def refresh(self):
        """Modules of models may be imported while the capture runs."""
        if not self.known:
            return
        for name, module in list(sys.modules.items()):
            if module is None or name in self.done or not name.startswith("transformers."):
                continue
            contents = getattr(module, "__dict__", {})
            if ".models." in name:
                self.done.add(name)
                for function, outputs in ROTARY.items():
                    if self._is_new(contents.get(function)):
                        self._replace(module, function, self._wrap(contents[function], outputs, rotary=True))
                for function in EAGER:
                    if self._is_new(contents.get(function)):
                        self._replace(module, function, self._wrap(contents[function], ATTENTION, True))
            table = contents.get(TABLE)
            if table is not None and not any(table is one for one in self.tables):
                self.tables.append(table)
                self._replace_entries(table)

    def _is_new(self, function):
        """Not one of these wrappers already, as a module has it that imported it from another."""
        return callable(function) and getattr(function, "tsleuth_patches", None) is not self

    def _torch_functions(self):
        functional = sys.modules.get("torch.nn.functional")
        if functional is None:
            return
        if hasattr(functional, "scaled_dot_product_attention"):
            original = functional.scaled_dot_product_attention
            self._replace(functional, "scaled_dot_product_attention", self._outside(original, ("attn_context",)))
        self._replace(functional, "softmax", self._softmax(functional.softmax))

    def _replace_entries(self, table):
        """The table of attention functions has its own entries and those of all; only its own are changed."""
        own = table if type(table) is dict else getattr(table, "_local_mapping", None)
        if own is None:
            return
        for key in list(table):
            before, had = own.get(key), key in own
            own[key] = self._wrap(table[key], ATTENTION, True)

            def restore(key=key, before=before, had=had):
                if had:
                    own[key] = before
                else:
                    own.pop(key, None)

            self.undo.append(restore)

    def _by_name(self, name, outputs):
        module_name, _, function = name.replace(":", ".").rpartition(".")
        module = sys.modules.get(module_name) or importlib.import_module(module_name)
        if not callable(getattr(module, function, None)):
            raise AttributeError(f"{module_name} has no function {function}")
        if outputs is None:
            outputs = ROTARY.get(function) or (ATTENTION if function in EAGER else None) or (function,)
        self._replace(module, function, self._wrap(getattr(module, function), outputs, function in EAGER,
                                                   function in ROTARY))

    # how

    def _replace(self, owner, name, replacement):
        original = getattr(owner, name)
        setattr(owner, name, replacement)
        self.undo.append(lambda: setattr(owner, name, original))

    def _record(self, outputs, result):
        if isinstance(outputs, str):
            outputs = (outputs,)
        values = result if isinstance(result, (tuple, list)) else (result,)
        indices = range(len(values))
        for index in reversed(indices) if outputs == ATTENTION else indices:  # the probabilities are computed first
            value = values[index]
            if index < len(outputs):
                name = outputs[index]
            else:
                name = f"{outputs[-1]}.{index}"
            if value is not None and name:
                self.capture.record(self.capture.inside(name), value)

    def _wrap(self, function, outputs, attention=False, rotary=False):
        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            depth = getattr(self.local, "attention", 0)
            if attention:
                self.local.attention = depth + 1
            try:
                result = function(*args, **kwargs)
            finally:
                self.local.attention = depth
            if rotary and not isinstance(result, (tuple, list)):
                self._record(self._turn(outputs), result)
            elif not attention or depth == 0:
                self._record(outputs, result)
            return result

        wrapped.tsleuth_patches = self
        return wrapped

    def _turn(self, outputs):
        """Some models turn queries and keys in one call each, queries first."""
        frame = self.capture.stack[-1] if self.capture.stack else [None, "", 0]
        frame[2] += 1
        return outputs[(frame[2] - 1) % len(outputs)]

    def _in_attention_module(self, scores):
        """Scores have the axes of queries and keys, and heads or a batch before them; a router's have two."""
        stack = self.capture.stack
        return bool(stack) and "Attention" in type(stack[-1][0]).__name__ and getattr(scores, "ndim", 0) >= 3

    def _outside(self, function, outputs):
        """Kept unless an attention function around it is."""
        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            result = function(*args, **kwargs)
            if not getattr(self.local, "attention", 0):
                self._record(outputs, result)
            return result

        return wrapped

    def _softmax(self, function):
        """Inside an attention function its input is the scores, scaled and masked. Older models have no such function:
        there it is called by the attention module itself, and its result is the probabilities."""
        @functools.wraps(function)
        def wrapped(input, *args, **kwargs):
            inside = getattr(self.local, "attention", 0)
            module = not inside and self._in_attention_module(input)
            if inside or module:
                self._record(("attn_scores_masked",), input)
            result = function(input, *args, **kwargs)
            if module:
                self._record(("attn_probs",), result)
            return result

        return wrapped
