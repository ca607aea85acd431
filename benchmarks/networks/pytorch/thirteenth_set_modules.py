"""Networks of papers that no package has: SVTR, point cloud transformer, SASRec, DnCNN."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class _Mixing(nn.Module):
    """Attention of all tokens, or of those of a window of rows and columns, and two Linears."""

    def __init__(self, width: int, heads: int, mask: Tensor | None) -> None:
        super().__init__()
        self.heads, self.mask = heads, mask
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """(N, tokens, width) to the same."""
        samples, length, width = tokens.shape
        joint = self.joint(self.before(tokens))
        joint = joint.reshape(samples, length, 3, self.heads, width // self.heads)
        query, key, value = joint.permute(2, 0, 3, 1, 4)
        scores = query * (width // self.heads) ** -0.5 @ key.transpose(-2, -1)
        if self.mask is not None:
            scores = scores + self.mask
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(samples, length, width)
        tokens = tokens + self.out(mixed)
        return tokens + self.outer(functional.gelu(self.inner(self.after(tokens))))


def _window(height: int, width: int, rows: int, columns: int) -> Tensor:
    row, column = torch.arange(height), torch.arange(width)
    near_row = (row[:, None] - row).abs() <= rows // 2
    near_column = (column[:, None] - column).abs() <= columns // 2
    near = near_row[:, None, :, None] & near_column[None, :, None, :]
    return torch.where(near.reshape(height * width, -1), 0.0, -1e4)


class Svtr(nn.Module):
    """Reads a line of text by attention of near and of all patches (Du et al. 2022)."""

    def __init__(self, height: int = 32, width: int = 64, classes: int = 40) -> None:
        super().__init__()
        self.size, widths = (height // 4, width // 4), (32, 64)
        layers: list[nn.Module] = []
        for before, after in ((3, 16), (16, widths[0])):
            layers += [nn.Conv2d(before, after, 3, 2, 1, bias=False), nn.BatchNorm2d(after)]
            layers.append(nn.GELU())
        self.stem = nn.Sequential(*layers)
        self.places = nn.Parameter(torch.randn(1, self.size[0] * self.size[1], widths[0]))
        near = _window(*self.size, 7, 11)
        self.first = nn.Sequential(*(_Mixing(widths[0], 2, near) for _ in range(2)))
        self.merge = nn.Conv2d(widths[0], widths[1], 3, (2, 1), 1)
        self.norm = nn.LayerNorm(widths[1])
        self.second = nn.Sequential(*(_Mixing(widths[1], 4, None) for _ in range(2)))
        self.combine = nn.Linear(widths[1], 96)
        self.scores = nn.Linear(96, classes)

    def forward(self, image: Tensor) -> Tensor:
        """Scores (N, width / 4, classes) of an image (N, 3, height, width)."""
        tokens = self.stem(image).flatten(2).transpose(1, 2) + self.places
        tokens = self.first(tokens).transpose(1, 2).reshape(len(image), -1, *self.size)
        tokens = self.norm(self.merge(tokens).flatten(2).transpose(1, 2))
        tokens = self.second(tokens).transpose(1, 2)
        tokens = tokens.reshape(len(image), -1, self.size[0] // 2, self.size[1])
        columns = functional.adaptive_avg_pool2d(tokens, (1, self.size[1])).squeeze(2)
        return self.scores(functional.hardswish(self.combine(columns.transpose(1, 2))))


class _Offset(nn.Module):
    """Attention whose result is taken from what it read, with queries and keys of one weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Conv1d(width, width // 4, 1, bias=False)
        self.value, self.out = nn.Conv1d(width, width, 1), nn.Conv1d(width, width, 1)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, points: Tensor) -> Tensor:
        """(N, width, points) to the same."""
        query = self.query(points)
        shares = (query.transpose(1, 2) @ query).softmax(-1)
        shares = shares / (1e-6 + shares.sum(1, keepdim=True))
        taken = self.value(points) @ shares
        return points + functional.relu(self.norm(self.out(points - taken)))


class PointTransformer(nn.Module):
    """Classes of a cloud by attention of all its points (Guo et al. 2021)."""

    def __init__(self, width: int = 64, classes: int = 10) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before in (3, width):
            layers += [nn.Conv1d(before, width, 1, bias=False), nn.BatchNorm1d(width), nn.ReLU()]
        self.stem = nn.Sequential(*layers)
        self.blocks = nn.ModuleList(_Offset(width) for _ in range(4))
        self.fuse = nn.Sequential(
            nn.Conv1d(4 * width, 256, 1, bias=False), nn.BatchNorm1d(256), nn.LeakyReLU(0.2)
        )
        self.head = nn.Sequential(
            nn.Linear(256, 128, bias=False), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, classes)
        )

    def forward(self, points: Tensor) -> Tensor:
        """Scores (N, classes) of points (N, 3, points)."""
        points, kept = self.stem(points), []
        for block in self.blocks:
            points = block(points)
            kept.append(points)
        return self.head(self.fuse(torch.cat(kept, 1)).amax(2))


class SasRec(nn.Module):
    """The next item of a list by attention to those before (Kang and McAuley 2018)."""

    def __init__(self, items: int = 500, width: int = 64, length: int = 32) -> None:
        super().__init__()
        self.items, self.places = nn.Embedding(items, width), nn.Embedding(length, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.attention = nn.ModuleList(
            nn.MultiheadAttention(width, 2, batch_first=True) for _ in range(2)
        )
        self.convs = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(4))

    def forward(self, history: Tensor) -> Tensor:
        """Scores (N, items) of the item after ``history`` (N, length)."""
        length = history.shape[1]
        items = self.items(history) * 8.0 + self.places(torch.arange(length))
        after = torch.full((length, length), -1e4).triu(1)
        for block in range(2):
            query = self.norms[2 * block](items)
            items = query + self.attention[block](query, items, items, attn_mask=after)[0]
            inner = self.norms[2 * block + 1](items)
            outer = self.convs[2 * block](inner.transpose(1, 2)).relu()
            items = inner + self.convs[2 * block + 1](outer).transpose(1, 2)
        return self.norms[4](items)[:, -1] @ self.items.weight.T


def dncnn(width: int = 32, depth: int = 8) -> nn.Module:
    """The noise of a grey image (Zhang et al. 2017), which ``Denoised`` takes away."""
    layers: list[nn.Module] = [nn.Conv2d(1, width, 3, padding=1), nn.ReLU()]
    for _ in range(depth - 2):
        conv = nn.Conv2d(width, width, 3, padding=1, bias=False)
        layers += [conv, nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(width, 1, 3, padding=1))


class Denoised(nn.Module):
    """An image without what a network says is noise."""

    def __init__(self, noise: nn.Module) -> None:
        super().__init__()
        self.noise = noise

    def forward(self, image: Tensor) -> Tensor:
        """(N, 1, H, W) to the same."""
        return image - self.noise(image)
