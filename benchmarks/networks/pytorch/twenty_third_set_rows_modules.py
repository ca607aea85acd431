"""Networks of rows and lines of the twenty-third set that no package here has, from papers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Bert4Rec(nn.Module):
    """BERT4Rec (Sun et al. 2019): a transformer over a history, scores by the items' embeddings."""

    def __init__(self, items: int = 200, width: int = 64, length: int = 24) -> None:
        super().__init__()
        self.items, self.places = nn.Embedding(items, width), nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList([_EncoderLayer(width, 4) for _ in "12"])
        self.last, self.bias = nn.Linear(width, width), nn.Parameter(torch.zeros(items))
        self.final = nn.LayerNorm(width)

    def forward(self, history: Tensor) -> Tensor:
        """Scores of all items at each place."""
        rows = self.norm(self.items(history) + self.places.weight[None])
        mask = (history > 0)[:, None, None]
        for layer in self.layers:
            rows = layer(rows, mask)
        rows = self.final(functional.gelu(self.last(rows)))
        scores: Tensor = rows @ self.items.weight.T + self.bias
        return scores


class _EncoderLayer(nn.Module):
    """Attention and two Linears, the norm behind each sum."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.parts = nn.ModuleList([nn.Linear(width, width) for _ in "123"])
        self.out, self.norms = (
            nn.Linear(width, width),
            nn.ModuleList([nn.LayerNorm(width) for _ in "12"]),
        )
        self.first, self.last = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, rows: Tensor, mask: Tensor | None = None) -> Tensor:
        batch, count, width = rows.shape
        shape = (batch, count, self.heads, width // self.heads)
        query, key, value = (part(rows).view(shape).transpose(1, 2) for part in self.parts)
        scores = query @ key.transpose(-2, -1) / shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, -1e4)
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, count, width)
        rows = self.norms[0](rows + self.out(mixed))
        made = self.last(functional.gelu(self.first(rows)))
        added: Tensor = self.norms[1](rows + made)
        return added


class InterestNetwork(nn.Module):
    """DIN (Zhou et al. 2018): a history weighted by how each item resembles the candidate."""

    def __init__(self, count: int = 100, width: int = 16) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList([nn.Embedding(count, width) for _ in range(4)])
        wide = 2 * width
        self.weigh = nn.Sequential(
            nn.Linear(4 * wide, 64), nn.Sigmoid(), nn.Linear(64, 32), nn.Sigmoid(), nn.Linear(32, 1)
        )
        self.norm = nn.BatchNorm1d(6 * width)
        self.layers = nn.Sequential(
            nn.Linear(6 * width, 80), nn.PReLU(80), nn.Linear(80, 40), nn.PReLU(40)
        )
        self.last = nn.Linear(40, 1)

    def forward(self, row: Tensor, history: Tensor) -> Tensor:
        """The probability of a click. ``row``: user, candidate, its class and the context."""
        user, item, kind, context = (table(row[:, i]) for i, table in enumerate(self.embeddings))
        candidate = torch.cat((item, kind), -1)
        past = torch.cat(
            (self.embeddings[1](history[..., 0]), self.embeddings[2](history[..., 1])), -1
        )
        repeated = candidate[:, None].expand_as(past)
        pairs = torch.cat((repeated, past, repeated - past, repeated * past), -1)
        weights = self.weigh(pairs).masked_fill(history[..., :1] == 0, 0.0)
        interest = (weights * past).sum(1)
        joined = torch.cat((user, candidate, interest, context), -1)
        made: Tensor = self.last(self.layers(self.norm(joined)))
        return made.sigmoid()


class _SplitConvs(nn.Module):
    """Res2Net's Convs of parts of a line, each of which adds what the one before made."""

    def __init__(self, width: int, scale: int, dilation: int) -> None:
        super().__init__()
        part = width // scale
        self.scale = scale
        self.convs = nn.ModuleList([_line(part, part, 3, dilation) for _ in range(scale - 1)])

    def forward(self, given: Tensor) -> Tensor:
        parts, made = given.chunk(self.scale, 1), []
        for index, part in enumerate(parts):
            if index == 0:
                made.append(part)
            else:
                made.append(self.convs[index - 1](part if index == 1 else part + made[-1]))
        return torch.cat(made, 1)


def _line(given: int, made: int, size: int = 1, dilation: int = 1) -> nn.Sequential:
    pad = dilation * (size // 2)
    conv = nn.Conv1d(given, made, size, padding=pad, dilation=dilation)
    return nn.Sequential(conv, nn.ReLU(), nn.BatchNorm1d(made))


class _SpeakerBlock(nn.Module):
    """ECAPA's block: two Convs around a Res2Net's, a gate of channels, the residual."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.made = nn.Sequential(
            _line(width, width), _SplitConvs(width, 4, dilation), _line(width, width)
        )
        self.gate = nn.Sequential(
            nn.Conv1d(width, width // 4, 1), nn.ReLU(), nn.Conv1d(width // 4, width, 1)
        )

    def forward(self, given: Tensor) -> Tensor:
        made = self.made(given)
        added: Tensor = given + made * self.gate(made.mean(2, keepdim=True)).sigmoid()
        return added


class EcapaTdnn(nn.Module):
    """ECAPA-TDNN (Desplanques et al. 2020), which embeds speakers."""

    def __init__(self, given: int = 80, width: int = 64, embedding: int = 96) -> None:
        super().__init__()
        self.stem = _line(given, width, 5)
        self.blocks = nn.ModuleList([_SpeakerBlock(width, d) for d in (2, 3, 4)])
        wide = 3 * width
        self.join = nn.Sequential(nn.Conv1d(wide, wide, 1), nn.ReLU())
        self.attention = nn.Sequential(_line(3 * wide, 32), nn.Tanh(), nn.Conv1d(32, wide, 1))
        self.norm, self.last = nn.BatchNorm1d(2 * wide), nn.Linear(2 * wide, embedding)

    def forward(self, frames: Tensor) -> Tensor:
        """The speaker's embedding."""
        made, found = self.stem(frames), []
        for block in self.blocks:
            made = block(made)
            found.append(made)
        made = self.join(torch.cat(found, 1))
        mean = made.mean(2, keepdim=True)
        deviation = (((made - mean) ** 2).mean(2, keepdim=True) + 1e-5).sqrt()
        context = torch.cat((made, mean.expand_as(made), deviation.expand_as(made)), 1)
        weights = self.attention(context).softmax(2)
        mean = (weights * made).sum(2)
        deviation = ((weights * made**2).sum(2) - mean**2).clamp(min=1e-5).sqrt()
        embedded: Tensor = self.last(self.norm(torch.cat((mean, deviation), 1)))
        return embedded


class _SpokenLayer(nn.Module):
    """FastPitch's block: attention of one head, then two Convs of a line, norms behind."""

    def __init__(self, width: int, wide: int) -> None:
        super().__init__()
        self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width, bias=False)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in "12"])
        self.first = nn.Conv1d(width, wide, 3, padding=1)
        self.last = nn.Conv1d(wide, width, 3, padding=1)

    def forward(self, rows: Tensor) -> Tensor:
        query, key, value = self.joint(rows).chunk(3, -1)
        weights = (query @ key.transpose(1, 2) * query.shape[-1] ** -0.5).softmax(-1)
        rows = self.norms[0](rows + self.out(weights @ value))
        made = self.last(functional.relu(self.first(rows.transpose(1, 2)))).transpose(1, 2)
        added: Tensor = self.norms[1](rows + made)
        return added


class _Predictor(nn.Module):
    """Two Convs of a line with norms, and a number for each symbol."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv1d(width, width, 3, padding=1) for _ in "12"])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in "12"])
        self.last = nn.Linear(width, 1)

    def forward(self, rows: Tensor) -> Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            rows = norm(functional.relu(conv(rows.transpose(1, 2))).transpose(1, 2))
        numbers: Tensor = self.last(rows)
        return numbers.squeeze(-1)


class FastPitch(nn.Module):
    """FastPitch (Lancucki 2021) before frames are repeated: durations, pitch and mel of symbols."""

    def __init__(self, symbols: int = 60, width: int = 64, mels: int = 80) -> None:
        super().__init__()
        self.symbols = nn.Embedding(symbols, width)
        self.encoder = nn.ModuleList([_SpokenLayer(width, 2 * width) for _ in "12"])
        self.decoder = nn.ModuleList([_SpokenLayer(width, 2 * width) for _ in "12"])
        self.duration, self.pitch = _Predictor(width), _Predictor(width)
        self.embed, self.last = nn.Conv1d(1, width, 3, padding=1), nn.Linear(width, mels)

    def forward(self, symbols: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The mel spectrum, logarithms of durations, and pitches."""
        rows = self.symbols(symbols) * 8.0
        for layer in self.encoder:
            rows = layer(rows)
        duration, pitch = self.duration(rows), self.pitch(rows)
        rows = rows + self.embed(pitch[:, None]).transpose(1, 2)
        for layer in self.decoder:
            rows = layer(rows)
        return self.last(rows), duration, pitch


class InvertedTransformer(nn.Module):
    """iTransformer (Liu et al. 2024): each series is a token."""

    def __init__(self, length: int = 96, horizon: int = 24, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Linear(length, width)
        self.layers = nn.ModuleList([_EncoderLayer(width, 4) for _ in "12"])
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, horizon)

    def forward(self, series: Tensor) -> Tensor:
        """The forecast of all series."""
        mean = series.mean(1, keepdim=True)
        centred = series - mean
        deviation = torch.sqrt(centred.var(1, keepdim=True, unbiased=False) + 1e-5)
        rows = self.embed((centred / deviation).transpose(1, 2))
        for layer in self.layers:
            rows = layer(rows)
        forecast = self.last(self.norm(rows)).transpose(1, 2)
        scaled: Tensor = forecast * deviation + mean
        return scaled


class _GatedLinear(nn.Module):
    """A Linear with a BatchNorm, half of which gates the other."""

    def __init__(self, given: int, made: int, linear: nn.Linear | None = None) -> None:
        super().__init__()
        self.linear = linear or nn.Linear(given, 2 * made, bias=False)
        self.norm = nn.BatchNorm1d(2 * made)

    def forward(self, given: Tensor) -> Tensor:
        return functional.glu(self.norm(self.linear(given)))


class _FeatureTransformer(nn.Module):
    """TabNet's four gated Linears, of which steps share two."""

    def __init__(self, given: int, made: int, shared: list[nn.Linear]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [
                _GatedLinear(given, made, shared[0]),
                _GatedLinear(made, made, shared[1]),
                _GatedLinear(made, made),
                _GatedLinear(made, made),
            ]
        )

    def forward(self, given: Tensor) -> Tensor:
        made: Tensor = self.layers[0](given)
        for layer in list(self.layers)[1:]:
            made = (made + layer(made)) * 0.5**0.5
        return made


def _sparsemax(scores: Tensor) -> Tensor:
    """The projection of each row onto the simplex."""
    ordered = scores.topk(scores.shape[-1], -1).values
    sums = ordered.cumsum(-1)
    places = torch.arange(1, scores.shape[-1] + 1).float()
    support = (1 + places * ordered > sums).float()
    count = support.sum(-1, keepdim=True)
    threshold = ((ordered * support).sum(-1, keepdim=True) - 1) / count
    return functional.relu(scores - threshold)


class TabNet(nn.Module):
    """TabNet (Arik and Pfister 2021) of three steps, for tables."""

    def __init__(self, columns: int = 24, width: int = 16, classes: int = 4) -> None:
        super().__init__()
        self.norm, both = nn.BatchNorm1d(columns), 2 * width
        shared = [
            nn.Linear(columns, 2 * both, bias=False),
            nn.Linear(both, 2 * both, bias=False),
        ]
        self.first = _FeatureTransformer(columns, both, shared)
        self.steps = nn.ModuleList([_FeatureTransformer(columns, both, shared) for _ in "123"])
        self.masks = nn.ModuleList(
            [
                nn.Sequential(nn.Linear(width, columns, bias=False), nn.BatchNorm1d(columns))
                for _ in "123"
            ]
        )
        self.width, self.last = width, nn.Linear(width, classes, bias=False)

    def forward(self, table: Tensor) -> Tensor:
        """Scores of the classes of each row."""
        given = self.norm(table)
        attended = self.first(given)[:, self.width :]
        prior, decided = torch.ones_like(given), torch.zeros(())
        for step, mask in zip(self.steps, self.masks, strict=True):
            weights = _sparsemax(mask(attended) * prior)
            prior = prior * (1.3 - weights)
            made = step(weights * given)
            decided = decided + functional.relu(made[:, : self.width])
            attended = made[:, self.width :]
        scores: Tensor = self.last(decided)
        return scores
