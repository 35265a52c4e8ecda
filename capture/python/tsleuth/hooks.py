"""Owns the hooks on torch modules: put on every module of a model, taken off again, and nothing of them left."""
import functools
import gc
import inspect
import sys

from .arrays import is_array, is_torch, walk

# Modules that stand around another one: they and their part of a name say nothing about the model.
WRAPPERS = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
WRAPPER_CLASSES = {"OptimizedModule", "FullyShardedDataParallel", "CheckpointWrapper", "DistributedDataParallel",
                   "DataParallel"}
OUTER_WRAPPERS = {"DistributedDataParallel", "DataParallel"}
# Inputs of a whole model that have a name everywhere.
MODEL_INPUTS = {"input_ids", "inputs_embeds", "position_ids", "attention_mask", "pixel_values"}
# Sums and products between modules are the input of the next one: its name -> what its input is called beside it.
BETWEEN = {"pre_feedforward_layernorm": "attn_residual", "post_attention_layernorm": "attn_residual",
           "ln_2": "attn_residual", "down_proj": "intermediate"}
MOST_SEARCHES = 32
MISSING = object()


def _clean(name, root):
    parts = name.split(".") if name else []
    if parts and parts[0] == "module" and type(root).__name__ in OUTER_WRAPPERS:
        parts = parts[1:]
    return ".".join(part for part in parts if part not in WRAPPERS)


class ModuleHooks:
    def __init__(self, capture):
        self.capture = capture
        self.torch = sys.modules["torch"]
        self.handles = []
        self.forwards = []  # (module, what its __dict__ had as "forward")
        self.names = {}  # id -> name
        self.keep = []  # the modules behind these ids
        self.roots = {}  # id -> prefix
        self.steps = {}  # id of a root -> number of its newest pass
        self.searches = 0
        self.call = None
        self.stance = None
        self.with_kwargs = "with_kwargs" in inspect.signature(
            self.torch.nn.Module.register_forward_pre_hook).parameters

    def attach(self, model):
        """None: whatever module is called."""
        self._run_eagerly(model)
        if model is None:
            self._watch_calls()
        else:
            self.add_root(model, "")

    def detach(self):
        if self.call:
            self.torch.nn.Module.__call__ = self.call
            self.call = None
        for handle in self.handles:
            handle.remove()
        for module, before in self.forwards:
            if before is MISSING:
                module.__dict__.pop("forward", None)
            else:
                module.__dict__["forward"] = before
        self.handles, self.forwards, self.names, self.keep, self.roots = [], [], {}, [], {}
        if self.stance:
            self.stance.__exit__(None, None, None)
            self.stance = None

    def _run_eagerly(self, model):
        """Hooks do not run inside compiled graphs, so compiled modules run as they were written while captured."""
        modules = list(model.modules()) if model is not None else []
        set_stance = getattr(getattr(self.torch, "compiler", None), "set_stance", None)
        if set_stance:
            self.stance = set_stance("force_eager")
            self.stance.__enter__()
        elif any(type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None)
                 for module in modules):
            self.capture.warn("the model is compiled, hooks do not run inside compiled graphs, and this torch cannot "
                               "switch compilation off for a while; capture the module that was compiled "
                               "(model._orig_mod), or set TORCHDYNAMO_DISABLE=1")

    # modules

    def add_root(self, root, prefix):
        inner = root
        while type(inner).__name__ in WRAPPER_CLASSES:
            children = list(inner._modules.values())
            if len(children) != 1 or children[0] is None:
                break
            inner = children[0]
        self.roots[id(inner)] = prefix
        modules = [(".".join(part for part in (prefix, _clean(name, root)) if part), module)
                   for name, module in root.named_modules()]
        named = dict(modules)
        for name, module in modules:
            if id(module) not in self.names:
                self._add(module, name, module is inner, self._between(name, named))
        if self.capture.gradients:
            for name, parameter in root.named_parameters():
                if parameter.requires_grad:
                    self._watch_gradient(parameter, ".".join(part for part in (prefix, _clean(name, root)) if part))

    def _between(self, name, modules):
        """What the input of a module is called when it is a point between modules, else None."""
        parent, _, last = name.rpartition(".")
        if self.capture.functions is not True or last not in BETWEEN or not parent:
            return None
        if last == "post_attention_layernorm" and (f"{parent}.pre_feedforward_layernorm" in modules
                                                   or f"{parent}.post_feedforward_layernorm" in modules):
            return None  # there it normalizes what attention adds, not the sum
        if BETWEEN[last] == "attn_residual" and getattr(modules.get(parent), "use_parallel_residual", False):
            return None  # attention and the MLP both begin with the layer's input
        return f"{parent}.{BETWEEN[last]}"

    def _add(self, module, name, is_root, between=None):
        self.names[id(module)] = name
        self.keep.append(module)
        if type(module).__name__ in WRAPPER_CLASSES and not is_root:
            return
        before = functools.partial(self._before, name, is_root, between)
        try:
            if self.with_kwargs:
                self.handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
            elif is_root or self.capture.inputs:
                self._wrap_forward(module, before)  # hooks of this torch do not see keyword arguments
            else:
                self.handles.append(module.register_forward_pre_hook(before))
            self.handles.append(module.register_forward_hook(functools.partial(self._after, name, is_root)))
        except (RuntimeError, AttributeError) as error:
            self.capture.lose(name, f"{type(module).__name__} takes no hooks: {error}")

    def _wrap_forward(self, module, before):
        forward = module.forward

        @functools.wraps(forward)
        def hooked(*args, **kwargs):
            before(module, args, kwargs)
            return forward(*args, **kwargs)

        self.forwards.append((module, module.__dict__.get("forward", MISSING)))
        module.__dict__["forward"] = hooked

    # the hooks

    def _before(self, name, is_root, between, module, args, kwargs=None):
        capture = self.capture
        stack = capture.stack
        if is_root:
            # Whatever is on the stack was left there by an exception, or this is a model inside another one.
            if not any(id(frame[0]) in self.roots and frame[0] is not module for frame in stack):
                stack.clear()
                self.steps[id(module)] = capture.step = self.steps.get(id(module), -1) + 1
            ids = self._arguments(module, args, kwargs or {}).get("input_ids")
            if ids is not None and is_torch(ids):
                capture.token_ids(ids)
        if between and args and is_array(args[0]):
            capture.record(between, args[0])
        stack.append([module, name, 0])
        if capture.inputs:
            self._record_inputs(name, module, args, kwargs or {})

    @staticmethod
    def _arguments(module, args, kwargs):
        found = dict(kwargs)
        if args:
            try:
                names = [name for name, parameter in inspect.signature(module.forward).parameters.items()
                         if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)]
            except (TypeError, ValueError):
                names = []
            for index, value in enumerate(args):
                found[names[index] if index < len(names) else str(index)] = value
            found = {**{key: found[key] for key in found if key not in kwargs}, **kwargs}
        return found

    def _record_inputs(self, name, module, args, kwargs):
        base = f"{name}.input" if name else "input"
        first = True
        for key, value in self._arguments(module, args, kwargs).items():
            if any(True for _ in walk(value, caches=self.capture.caches)):
                if not name and key in MODEL_INPUTS:
                    self.capture.record(key, value)
                else:
                    self.capture.record(base if first and is_array(value) else f"{base}.{key}", value)
                first = False

    def _after(self, name, is_root, module, args, output):
        capture = self.capture
        stack = capture.stack
        while stack:
            if stack.pop()[0] is module:
                break
        prefix = name
        if is_root and (is_array(output) or isinstance(output, (tuple, list))):
            prefix = f"{name}.output" if name else "output"
        stored = capture.record(prefix, output)
        if capture.gradients:
            for stored_name, tensor in stored:
                if is_torch(tensor) and tensor.requires_grad:
                    self._watch_gradient(tensor, stored_name, True)

    def _watch_gradient(self, tensor, name, qualified=False):
        def arrived(gradient):
            self.capture.record(f"{name}.grad", gradient, qualified)

        try:
            self.handles.append(tensor.register_hook(arrived))
        except RuntimeError as error:
            self.capture.lose(f"{name}.grad", str(error).split("\n")[0])

    # modules nobody named

    def _watch_calls(self):
        self.call = original = self.torch.nn.Module.__call__

        @functools.wraps(original)
        def call(module, *args, **kwargs):
            if id(module) not in self.names and self.call:
                self._adopt(module)
            return original(module, *args, **kwargs)

        self.torch.nn.Module.__call__ = call

    def _adopt(self, module):
        with self.capture._lock:
            if id(module) in self.names:
                return
            stack = self.capture.stack
            if stack:  # made inside a forward pass
                inside = stack[-1][1]
                name = type(module).__name__
                for child, sub in list(module.named_modules()):
                    if id(sub) not in self.names:
                        self._add(sub, ".".join(part for part in (inside, name, child) if part), False)
                return
            root = self._topmost(module)
            if id(root) in self.names:  # known, and has grown a module
                prefix = self.names[id(root)]
            else:
                prefix = "" if not self.roots else self._new_prefix(type(root).__name__)
                self.capture.found(root)
            self.add_root(root, prefix)

    def _new_prefix(self, name):
        taken = set(self.roots.values())
        count, prefix = 1, name
        while prefix in taken:
            count += 1
            prefix = f"{name}_{count}"
        return prefix

    def _topmost(self, module):
        """The module that contains this one and is contained by none. Looking through all objects takes a while, so a
        program that makes modules over and over is not searched for ever."""
        self.searches += 1
        if self.searches > MOST_SEARCHES:
            return module
        parents = {}
        base = self.torch.nn.Module
        for one in gc.get_objects():
            if issubclass(type(one), base):
                for child in one.__dict__.get("_modules", {}).values():
                    if child is not None:
                        parents.setdefault(id(child), one)
        seen = set()
        while id(module) in parents and id(module) not in seen:
            seen.add(id(module))
            module = parents[id(module)]
        return module
