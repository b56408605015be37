"""A small model with attention of its own, for the tests of the command line."""
import torch


class Attention(torch.nn.Module):
    """elu(q) + 1 times elu(k) + 1: what attnrun::LinearAttention is."""

    def __init__(self, heads=4):
        super().__init__()
        self.heads = heads

    def forward(self, q, k, v, mask=None):
        batch, _, width = q.shape

        def split(x):
            return x.reshape(batch, -1, self.heads, width // self.heads).transpose(1, 2)
        q, k, v = split(q), split(k), split(v)
        q, k = torch.nn.functional.elu(q) + 1, torch.nn.functional.elu(k) + 1
        if mask is not None:
            k = k * mask[:, None, :, None]
        sums = (q * k.sum(2, keepdim=True)).sum(-1, keepdim=True)
        y = q @ (k.transpose(-1, -2) @ v) / (sums + 1e-6)
        return y.transpose(1, 2).reshape(batch, -1, width)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(50, 16)
        self.qkv = torch.nn.Linear(16, 48)
        self.attention = Attention()

    def forward(self, ids, mask=None):
        x = self.table(ids)
        q, k, v = self.qkv(x).chunk(3, -1)
        return {"y": x + self.attention(q, k, v, None if mask is None else mask > 0)}


class Noise(torch.nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x)


class Fixed(torch.nn.Module):
    """A token weight, which fixes the length."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(8))

    def forward(self, x):
        return x * self.weight


def net():
    return Net().eval()


def training():
    model = Net().eval()
    model.attention.train()
    return model


def noise():
    return Noise().eval(), (torch.zeros(2, 3),)


def fixed():
    return Fixed().eval()


def text():
    return "no module"


class Array(torch.nn.Module):
    def forward(self, ids):
        return ids.numpy()


def array():
    return Array().eval()


class Complex(torch.nn.Module):
    def forward(self, x):
        return torch.complex(x, x + 1)


def complex_numbers():
    return Complex().eval()
