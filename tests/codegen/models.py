"""Small models, each with one feature that is hard to generate code for."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Batch:
    image: torch.Tensor
    mask: torch.Tensor | None = None


@dataclass
class Result:
    logits: torch.Tensor
    hidden: tuple[torch.Tensor, ...] = ()


@torch.library.custom_op("torchport_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x**3

    @staticmethod
    def backward(ctx, grad):
        return grad  # straight through


class Lambda(nn.Module):
    """A model that calls a function of the module and its inputs."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, x, y=None):
        return self.function(self, x) if y is None else self.function(self, x, y)


def patches(model, x):
    batch, channels, height, width = x.shape
    x = x.reshape(batch, channels, height // 2, 2, width // 2, 2)
    x = x.permute(0, 2, 4, 1, 3, 5).reshape(batch, (height // 2) * (width // 2), channels * 4)
    return x * (channels * 4) ** -0.5


def counts(model, x):
    return x / x.numel() + x.shape.numel() + x.size()[1:].numel()


def writes(model, x):
    x = x.clone()
    x[:, 0] = 1.5
    x[..., 1] += x[..., 0]
    y = x.view(-1)
    y.mul_(2)
    return x, y


def writes_a_property(model, x):
    y = x * 2
    y.data = x + 1
    return y * 3


def updates(model, x):
    model.count.add_(1)
    model.mean = 0.9 * model.mean + 0.1 * x.mean(0)
    return x - model.mean, model.count


def modes(model, x):
    with torch.no_grad():
        scale = model.proj(x).abs().mean()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = model.proj(x)
    with torch.enable_grad():
        z = model.proj(x) * scale
    return y, z


def autocast_of_two_devices(model, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.set_autocast_enabled("cuda", True)  # torch.autocast does so only where there is a GPU
        y = model.proj(x)
        torch.set_autocast_enabled("cuda", False)
        z = model.proj(x)
    return y, z


def kinds(model, x):
    mask = torch.ones(x.shape[1], x.shape[1], dtype=x.dtype, device=x.device).tril()
    return x @ mask, torch.zeros(x.shape[0]).to(x.dtype), torch.full((2,), x.ndim)


def randoms(model, x):
    return F.dropout(x, 0.5, training=True) + torch.rand_like(x) + torch.randn(x.shape[0], 1)


def constants(model, x):
    small = torch.tensor([0.25, 0.5, 1.0])
    large = torch.tensor([0.1 * i for i in range(60)])
    return x[:, :3] * small + large.sum() + model.table[: x.shape[0], None].float()


def parts(model, x):
    values, indices = x.max(dim=1)
    first, *rest = x.chunk(3, dim=1)
    return {"values": values, "indices": indices, "rest": [first + rest[0], rest[1]], "none": None}


def vectorised(model, x):
    return torch.vmap(lambda row: row * row.sum())(x)


def packed(model, x):
    lengths = torch.tensor([3, 2])
    sequence = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
    result, _ = model.rnn(sequence)
    unpacked, _ = nn.utils.rnn.pad_packed_sequence(result, batch_first=True)
    return unpacked


def checkpointed(model, x):
    return torch.utils.checkpoint.checkpoint(model.proj, x, use_reentrant=False)


def custom(model, x):
    return twice(x) + torch.ops.torchport_tests.twice(x) + Cube.apply(x)


def branches(model, x):
    if x.sum() > 0:
        return x + 1
    return x - 1


def reads_a_number(model, x):
    return x * x.max().item()


def loops_over_sizes(model, x):
    total = x[0]
    for index in range(1, x.shape[0]):
        total = total * 2 + x[index]
    return total


def branches_on_sizes(model, x):
    if x.shape[1] % 2 == 1:
        x = F.pad(x, (0, 1))
    return x.reshape(x.shape[0], x.shape[1] // 2, 2)


def loops_over_what_it_finds(model, x):
    total = x.sum()
    for index in (x > 0.5).nonzero():
        total = total * 2 + x[index[0], index[1]]
    return total


def takes_its_example_only(model, x):
    last = x[2:]
    return last[last > 0.5].view(1)


def picks(model, x):
    return x[x > 0.5].sum() + x.masked_select(x < 0.2).sum()


@torch.jit.script
def scripted_part(x):
    return x * 2 + torch.sigmoid(x)


def scripted(model, x):
    return scripted_part(x) + x[x > 0.5].sum()


def initialises_once(model, x):
    if model.count.item() == 0:
        model.count.add_(1)
        return x - x.mean()
    return x


def reads_a_weight(model, x):
    return x + 1 if model.count.item() == 0 else x - 1


def returns_what_torch_returns(model, x):
    return {
        "min": torch.cummin(x, 0),
        "det": torch.linalg.slogdet(x),
        "own": torch.return_types.max((x.amax(1) + 1, x.argmax(1))),
    }


def counts_in_an_expression(model, x):
    return x * model.count.add_(1) + model.count.mul_(2)


def leaves_out_full_masks(model, x, mask):
    if not torch.compiler.is_compiling() and (mask == 1).all():
        return x
    return x * mask


def looks_though_compiled(model, x, mask):
    return x if mask.all() else x * mask


def needs_a_mask_if_compiled(model, x):
    if torch.compiler.is_compiling():
        raise TypeError("no mask")
    return x if x.sum() > 0 else -x


def rounds_otherwise_if_compiled(model, x, mask):
    if not torch.compiler.is_compiling() and (mask == 1).all():
        return x * 3 / 7
    return x * (3 / 7) * mask


def is_another_if_compiled(model, x, mask):
    if not torch.compiler.is_compiling() and (mask == 1).all():
        return x
    return x * mask + 1


def differentiates(model, x):
    return torch.func.grad(lambda value: (value**2).sum())(x)


def asks_autograd(model, x):
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        return torch.autograd.grad((leaf**2).sum(), leaf)[0]


def losses(model, x, target):
    return model.cross_entropy(x, target), model.mean_squares(x, x * 2)
