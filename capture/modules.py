"""Names of modules and parameters, and the stack of running modules.

Names go by module identity: `named_modules()` of the root, without the segments that wrappers add. So they stay right
where the module stack differs, as when activation checkpointing recomputes a layer.
"""

from __future__ import annotations

import gc
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .frames import is_user_file
from .guard import ends_no_run
from .messages import describe, say

if TYPE_CHECKING:
    from .keeping.boundaries import Boundaries

__all__ = [
    "ModuleNames",
    "ModuleStack",
    "Running",
    "fsdp_state",
    "holder_of",
    "holders_of",
    "is_wrapper",
    "models_with",
    "strip_wrappers",
]

_NO_NAMES = frozenset({"self", "module", "root", "top", "found"})
_WRAPPER_SEGMENTS = frozenset({"_checkpoint_wrapped_module", "_orig_mod", "_fsdp_wrapped_module"})
_WRAPPER_CLASSES = ("DistributedDataParallel", "FullyShardedDataParallel", "OptimizedModule", "CheckpointWrapper")
"""Modules that only forward to an inner one, named `module` or as one of the segments above."""


def strip_wrappers(name: str) -> str:
    """Return a module path without the segments of checkpoint, compile and FSDP wrappers."""
    if "_" not in name:
        return name
    return ".".join(part for part in name.split(".") if part not in _WRAPPER_SEGMENTS)


def is_wrapper(module: nn.Module) -> bool:
    """Return True for a module that only forwards to an inner one."""
    return any(cls.__name__ in _WRAPPER_CLASSES for cls in type(module).__mro__)


def _unwrapped(module: nn.Module) -> nn.Module:
    while is_wrapper(module):
        inner = [child for name, child in module.named_children() if name in _WRAPPER_SEGMENTS or name == "module"]
        if len(inner) != 1:
            break
        module = inner[0]
    return module


def _class_name(module: nn.Module) -> str:
    """Return the class name of a model without FSDP2's prefix (`FSDPTransformer` is a `Transformer`)."""
    cls = type(_unwrapped(module))
    sharded = any(c.__name__ == "FSDPModule" for c in cls.__mro__)
    return (cls.__name__.removeprefix("FSDP") if sharded else "") or cls.__name__


def _contains(module: nn.Module) -> bool:
    """True for a container, such as a list of layers: it computes nothing itself, and has no parameters of its own."""
    return type(module).forward is nn.Module.forward and not module._parameters and not module._buffers


def fsdp_state(module: nn.Module) -> Any:
    """Return FSDP2's state of a module, None for one that it does not wrap."""
    get_state: Any = getattr(module, "_get_fsdp_state", None)
    return get_state() if get_state is not None else None


class ModuleNames:
    """Names of the modules and parameters of one or more models.

    Modules of the first model have their own paths; so do those of further models while none is taken but those of
    containers, as of a pipeline's stages on one rank. Otherwise, and for a model that no optimizer trains (a teacher, a
    target network), the name of what holds it stands in front: `ref_model`; where there is none, and for a model
    without parameters, such as a loss, its class. Operations of a root module itself are named by its class.
    """

    def __init__(self, roots: Sequence[nn.Module] = ()) -> None:
        self.roots: list[nn.Module] = []
        self._names: dict[int, str] = {}
        self._known: set[str] = set()
        self._parameters: dict[int, str] = {}
        self._held_as: dict[int, tuple[str, bool]] = {}
        self._first: nn.Module | None = None
        for root in roots:
            self.add_root(root)

    def add_root(self, root: nn.Module, holder: str = "", *, trained: Collection[int] | None = None) -> None:
        """Name everything in a model.

        Args:
            root: the model.
            holder: name of the attribute or variable that holds it, "" if unknown.
            trained: ids of the parameters that optimizers train, None if unknown.
        """
        if id(root) in self._names:
            return
        parameters = {id(p) for p in root.parameters()}
        learns = torch.is_grad_enabled() and any(p.requires_grad for p in root.parameters())
        apart = bool(trained and parameters and parameters.isdisjoint(trained)) and not learns
        # a path that begins with a capital letter begins with a class
        holder = holder[:1].lower() + holder[1:] if parameters else ""
        holder, apart = self._held_as.setdefault(id(root), (holder, apart))
        first = self._first is None and not apart
        if first:
            self._first = root
        self.roots.append(root)
        top = _unwrapped(root)
        modules = {strip_wrappers(name): module for name, module in top.named_modules()}
        paths = modules.keys() - {""}
        # stages of one rank have the same containers, each other layers in them
        taken = any(path in self._known and not _contains(modules[path]) for path in paths)
        class_name = _class_name(root)
        prefix = "" if first or (paths and not taken and not apart) else (holder or class_name) + "."
        while prefix and prefix[:-1] in self._known:
            prefix = prefix[:-1] + "_."
        for module in (root, top):
            self._names[id(module)] = prefix[:-1] or class_name
        for name, module in top.named_modules():
            clean = strip_wrappers(name)
            if clean:
                self._names.setdefault(id(module), prefix + clean)
        self._known |= {prefix + path for path in paths} | {prefix[:-1] or class_name}
        self.refresh_parameters()

    def refresh_parameters(self) -> None:
        """Refresh the parameters: sharding and compiling replace their tensors."""
        self._refresh_with(self._shards())

    def _refresh_with(self, shards: Mapping[int, Any]) -> None:
        for owner, module in self._modules():
            for name, parameter in module.named_parameters(recurse=False):
                self._parameters.setdefault(id(parameter), owner + name)
                self._parameters.setdefault(id(shards.get(id(parameter), parameter)), owner + name)

    def keep(self, roots: Sequence[nn.Module]) -> None:
        """Forget all models but these."""
        if len(roots) != len(self.roots):
            self.roots = list(roots)
            self._held_as = {key: held for key, held in self._held_as.items() if key in set(map(id, roots))}
            self.refresh()

    def refresh(self) -> None:
        """Refresh all names: modules may have been added or removed, and their ids reused."""
        roots, self.roots = self.roots, []
        self._names, self._parameters, self._known, self._first = {}, {}, set(), None
        for root in roots:
            self.add_root(root)

    def name(self, module: nn.Module) -> str | None:
        """Return the path of a module, None for one outside the known models."""
        return self._names.get(id(module))

    def title(self, root: nn.Module) -> str:
        """Return the name of what holds a model, else its class."""
        holder, _ = self._held_as.get(id(root), ("", False))
        return holder or _class_name(root)

    def within(self, path: str, module: str | None) -> str:
        """Resolve a path that may be relative to `module`: the full path where the module has it."""
        full = f"{module}.{path}"
        return full if module and path not in self._known and full in self._known else path

    def parameter(self, parameter: Any) -> str | None:
        """Return the path of a parameter, None for another tensor."""
        return self._parameters.get(id(parameter))

    def parameters(self) -> Iterator[tuple[str, Any]]:
        """Yield the current (path, parameter) pairs of all models: of what FSDP2 has gathered, those of its shards."""
        seen, shards = set[int](), self._shards()
        self._refresh_with(shards)
        for root in self.roots:
            for registered in root.parameters():
                parameter = shards.get(id(registered), registered)
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield self._parameters.get(id(parameter), f"parameter_{len(seen) - 1}"), parameter

    def _shards(self) -> dict[int, Any]:
        """By the id of a parameter that FSDP2 has gathered, the shard that it had in its place.

        After a pass without gradients the outermost module keeps its parameters gathered.
        """
        found: dict[int, Any] = {}
        for root in self.roots:
            for module in root.modules():
                state = fsdp_state(module)
                # older versions of torch have one group
                groups = getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
                for held in (held for group in groups for held in getattr(group, "fsdp_params", ())):
                    place, shard = getattr(held, "_module_info", None), getattr(held, "sharded_param", None)
                    if place is not None and shard is not None:
                        found[id(getattr(place.module, place.param_name, None))] = shard
        return found

    def buffers(self) -> Iterator[tuple[str, Any]]:
        """Yield the current (path, buffer) pairs of all models."""
        for owner, module in self._modules():
            for name, buffer in module.named_buffers(recurse=False):
                yield owner + name, buffer

    def tensors(self) -> Iterator[tuple[str, Any]]:
        """Yield the current (path, tensor) pairs of all parameters and buffers."""
        yield from self.parameters()
        yield from self.buffers()

    def _modules(self) -> Iterator[tuple[str, nn.Module]]:
        """Yield the modules of all models, with the prefix of the names of what they own."""
        for root in self.roots:
            first = (root, _unwrapped(root)) if root is self._first else ()
            for module in _unwrapped(root).modules():
                owner = self._names.get(id(module))
                if owner is not None:
                    yield "" if module in first else f"{owner}.", module


@dataclass(slots=True)
class Running:
    """A running module."""

    module: nn.Module
    name: str


class ModuleStack:
    """Stack of running modules per thread, kept by hooks on all modules of the process.

    The hooks cost next to nothing while `active` is False and `on_leave`, which is told of each module that is left and
    what it gives, is None. `boundaries`, where there are any, are told what each call is given and gives. Under
    compilation they do nothing, so that compiled code is the same with and without them.

    Args:
        names: of the modules.
        on_enter: called when a module is entered, with whether it is the outermost one, and its arguments.
        broken: told of an error in a hook.
    """

    def __init__(
        self,
        names: ModuleNames,
        on_enter: Callable[[nn.Module, bool, tuple[Any, ...]], None] | None = None,
        broken: Callable[[Exception], None] = lambda error: say(f"modules are not known: {describe(error)}"),
    ) -> None:
        self.names = names
        self.broken = broken
        self.active = False
        self.on_leave: Callable[[nn.Module, Any], None] | None = None
        self.boundaries: Boundaries | None = None
        self._on_enter = on_enter
        self._stacks: dict[int, list[Running]] = {}
        self._parents: dict[int, tuple[weakref.ref[nn.Module], weakref.ref[nn.Module]]] = {}
        self._handles: list[Any] = []
        self._compile: Any = None
        self._watched: list[tuple[weakref.ref[nn.Module], Any, Any]] = []

    def install(self) -> None:
        """Install the hooks for module calls, submodule registration and in-place compilation."""
        hooks = torch.nn.modules.module
        # the warning is for hooks that must not see a wrapper, and would end the run where warnings are errors
        warnings.filterwarnings("ignore", message=r"Using `torch\.compile\(module\)` when there are global hooks")
        # registered last, so that the training code's own hooks are not disturbed
        self._handles = [
            hooks.register_module_forward_pre_hook(self._enter),
            hooks.register_module_forward_hook(self._leave, always_call=True),
            hooks.register_module_module_registration_hook(self._registered),
        ]
        original, watch = nn.Module.compile, self._watch_compiled

        def compile_and_watch(module: nn.Module, *args: Any, **kwargs: Any) -> None:
            original(module, *args, **kwargs)
            watch(module)

        self._compile = original
        nn.Module.compile = compile_and_watch
        for root in self.names.roots:
            for module in root.modules():
                self._watch_compiled(module)

    @ends_no_run
    def _watch_compiled(self, module: nn.Module) -> None:
        """Wrap the compiled call of modules compiled in place (`module.compile()`), which run no hooks."""
        compiled = getattr(module, "_compiled_call_impl", None)
        if compiled is None or any(watched is compiled for _, _, watched in self._watched):
            return

        def call(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return compiled(*args, **kwargs)
            self._enter(module, args)
            try:
                return compiled(*args, **kwargs)
            finally:
                self._leave(module, args, None)

        module._compiled_call_impl = call
        self._watched.append((weakref.ref(module), compiled, call))

    def remove(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._stacks.clear()
        if self._compile is not None:
            nn.Module.compile = self._compile
            self._compile = None
        for reference, compiled, call in self._watched:
            module = reference()
            if module is not None and module._compiled_call_impl is call:
                module._compiled_call_impl = compiled
        self._watched = []

    @property
    def current(self) -> str | None:
        """Name of this thread's innermost running module."""
        stack = self._stacks.get(threading.get_ident())
        return stack[-1].name if stack else None

    def top_of(self, module: nn.Module) -> nn.Module:
        """Return the outermost module that contains a module."""
        seen = {id(module)}
        while (link := self._parents.get(id(module))) is not None:
            child, parent = link[0](), link[1]()
            # the id may have been that of a deleted module
            if child is not module or parent is None or id(parent) in seen:
                break
            seen.add(id(parent))
            module = parent
        return module

    def learn(self, model: nn.Module) -> None:
        """Learn how a model is assembled that was made before the hooks were on."""
        for parent in model.modules():
            for child in parent.children():
                self._registered(parent, "", child)

    def tops(self) -> list[nn.Module]:
        """Return the outermost modules of the process, as far as they were assembled while the hooks were on."""
        found = {}
        for child, parent in self._parents.values():
            module = child()
            if module is not None and parent() is not None:
                top = self.top_of(module)
                found[id(top)] = top
        return list(found.values())

    @ends_no_run
    def _registered(self, parent: nn.Module, _name: str, child: Any) -> None:
        if isinstance(child, nn.Module):
            self._parents[id(child)] = (weakref.ref(child), weakref.ref(parent))

    def _enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if not torch.compiler.is_compiling():
            self._push(module, args)

    @ends_no_run
    def _push(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        stack = self._stacks.setdefault(threading.get_ident(), [])
        if self._on_enter is not None:
            self._on_enter(module, not stack, args)
        # a graph's operations carry their modules themselves
        if (self.active or self.on_leave) and not isinstance(module, torch.fx.GraphModule):
            stack.append(Running(module, self.names.name(module) or _inherited(stack, module)))
            if self.boundaries is not None:
                self.boundaries.entered(module, args)

    def _leave(self, module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        if not torch.compiler.is_compiling():
            if self.boundaries is not None:
                self.boundaries.left(module, output)
            self._pop(module, output)

    @ends_no_run
    def _pop(self, module: nn.Module, output: Any) -> None:
        stack = self._stacks.get(threading.get_ident())
        # an exception inside may have left modules behind whose exit hook never ran
        if stack and any(running.module is module for running in stack):
            while stack.pop().module is not module:
                pass
        if self.on_leave is not None:
            self.on_leave(module, output)


def holder_of(module: nn.Module) -> str:
    """Return the name of a running function's variable, of an object's attribute or of a global that holds a module."""
    return holders_of([module])[0]


def holders_of(modules: Sequence[nn.Module]) -> list[str]:
    """Return the same of several modules, in one search of all objects for those that no running function knows."""
    names = [_running_holder(module) for module in modules]
    unknown = [module for module, name in zip(modules, names, strict=True) if not name]
    owners = gc.get_referrers(*unknown) if unknown else []
    dicts = [owner if isinstance(owner, dict) else getattr(owner, "__dict__", None) for owner in owners]
    held = [owner for owner in dicts if isinstance(owner, dict)]
    return [
        name or next(filter(None, (_key_of(module, owner) for owner in held)), "")
        for module, name in zip(modules, names, strict=True)
    ]


def _running_holder(module: nn.Module) -> str:
    best = ""
    frame: Any = sys._getframe(1)
    while frame is not None:
        inside = frame.f_code.co_name
        if is_user_file(frame.f_code.co_filename) and (inside == "<module>" or not inside.startswith("<")):
            held = frame.f_locals
            of_self = getattr(held.get("self"), "__dict__", {})
            # a caller's name says more than an argument's
            best = _key_of(module, of_self) or _key_of(module, held) or best
        frame = frame.f_back
    return best


def _key_of(module: nn.Module, owner: Mapping[Any, Any]) -> str:
    names = (name for name, value in list(owner.items()) if value is module and isinstance(name, str))
    return next((name for name in names if name not in _NO_NAMES and name.isidentifier()), "")


def models_with(wanted: Callable[[torch.Tensor], bool]) -> list[nn.Module]:
    """Return the outermost modules of the process that have a parameter or buffer of some kind.

    Slow: searches all objects. A copy of a model (`deepcopy`) that is never called announces itself in no other way.
    """
    modules = [found for found in gc.get_objects() if issubclass(type(found), nn.Module)]
    inner = {id(child) for module in modules for child in module.children()}
    tops = [module for module in modules if id(module) not in inner]
    return [top for top in tops if any(wanted(tensor) for tensor in (*top.parameters(), *top.buffers()))]


def _inherited(stack: list[Running], module: nn.Module) -> str:
    """Name a module of no known model (made during the step) by its class, below its caller."""
    own = type(module).__name__
    return f"{stack[-1].name}.{own}" if stack else own
