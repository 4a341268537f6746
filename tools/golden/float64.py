"""True float64 forward passes of `transformers` models.

`model.double()` is not float64: norms, softmax, rotary tables and gates are cast to float32 inside the library.
`Float64Mode` turns every such cast into a cast to float64 while it is active and raises if a float32 tensor appears
all the same, so that a result computed under it is known to be float64 throughout.

    with Float64Mode():
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")
        logits = model(ids).logits

Made with torch 2.15.0 and transformers 5.24.0 (CPU).
"""

import torch
from torch.overrides import TorchFunctionMode


def _widen(value):
    return torch.float64 if value is torch.float32 else value


def _has_float32(value):
    if isinstance(value, torch.Tensor):
        return value.dtype is torch.float32
    if isinstance(value, (tuple, list)):
        return any(_has_float32(item) for item in value)
    return False


class Float64Mode(TorchFunctionMode):
    """Replaces float32 by float64 in the arguments of every torch function; float32 results are an error."""

    # Functions that read a float32 tensor from a file; their result is widened by the caller.
    _EXEMPT = ("__get__", "__set__", "is_floating_point", "numel", "size", "dim", "data_ptr", "element_size")

    def __enter__(self):
        self._previous = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        return super().__enter__()

    def __exit__(self, *exc):
        torch.set_default_dtype(self._previous)
        return super().__exit__(*exc)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = {name: _widen(value) for name, value in (kwargs or {}).items()}
        args = tuple(_widen(value) for value in args)
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        result = func(*args, **kwargs)
        if _has_float32(result) and getattr(func, "__name__", "") not in self._EXEMPT:
            raise AssertionError(f"float32 result inside a float64 pass: {func}")
        return result
