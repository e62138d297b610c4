"""The adapter for nano-vllm, on a double whose layers load by the operations of nano-vllm's: narrow, chunk, copy_."""
import pytest
import torch
from conftest import bytes_of, url_of
from safetensors.torch import save_file
from torch import nn

import tensord
import tensord.nano_vllm

HIDDEN, HEADS, KV_HEADS, HEAD, FFN, VOCAB = 32, 4, 2, 8, 64, 96


class Sharded(nn.Module):
    """A layer whose parameter is this rank's part of dimension `dim`; `parts` are joined in it, by shard id."""

    def __init__(self, rank, tp, dim, rows, columns, parts=None):
        super().__init__()
        self.rank, self.tp, self.dim, self.parts = rank, tp, dim, parts
        shape = [rows, columns]
        shape[dim] //= tp
        self.weight = nn.Parameter(torch.zeros(shape))
        self.weight.weight_loader = self.weight_loader

    def weight_loader(self, parameter, loaded, shard=None):
        target = parameter.data
        if shard is not None:
            sizes = {name: size // self.tp for name, size in self.parts.items()}
            names = list(sizes)
            target = target.narrow(0, sum(sizes[name] for name in names[: names.index(shard)]), sizes[shard])
            target.copy_(loaded.chunk(self.tp, self.dim)[self.rank])
            return
        size = target.size(self.dim)
        target.copy_(loaded.narrow(self.dim, self.rank * size, size))


class Layer(nn.Module):
    def __init__(self, rank, tp):
        super().__init__()
        queries, keys = HEADS * HEAD, KV_HEADS * HEAD
        self.qkv_proj = Sharded(rank, tp, 0, queries + 2 * keys, HIDDEN, {"q": queries, "k": keys, "v": keys})
        self.o_proj = Sharded(rank, tp, 1, HIDDEN, queries)
        self.gate_up_proj = Sharded(rank, tp, 0, 2 * FFN, HIDDEN, {0: FFN, 1: FFN})
        self.down_proj = Sharded(rank, tp, 1, HIDDEN, FFN)
        self.norm = nn.LayerNorm(HIDDEN, bias=False)


class Double(nn.Module):
    packed_modules_mapping = {"q_proj": ("qkv_proj", "q"), "k_proj": ("qkv_proj", "k"), "v_proj": ("qkv_proj", "v"),
                              "gate_proj": ("gate_up_proj", 0), "up_proj": ("gate_up_proj", 1)}

    def __init__(self, rank, tp):
        super().__init__()
        self.embed_tokens = Sharded(rank, tp, 0, VOCAB, HIDDEN)
        self.layers = nn.ModuleList(Layer(rank, tp) for _ in range(2))


def checkpoint():
    torch.manual_seed(7)
    tensors = {"embed_tokens.weight": torch.randn(VOCAB, HIDDEN)}
    for number in range(2):
        for name, shape in {"q_proj": (HEADS * HEAD, HIDDEN), "k_proj": (KV_HEADS * HEAD, HIDDEN),
                            "v_proj": (KV_HEADS * HEAD, HIDDEN), "o_proj": (HIDDEN, HEADS * HEAD),
                            "gate_proj": (FFN, HIDDEN), "up_proj": (FFN, HIDDEN), "down_proj": (HIDDEN, FFN),
                            "norm": (HIDDEN,)}.items():
            tensors[f"layers.{number}.{name}.weight"] = torch.randn(shape)
    return tensors


def load_local(model, tensors):
    """Load as nano-vllm's load_model does, from tensors in memory."""
    for name, tensor in tensors.items():
        for part, (whole, shard) in model.packed_modules_mapping.items():
            if part in name:
                parameter = model.get_parameter(name.replace(part, whole))
                parameter.weight_loader(parameter, tensor, shard)
                break
        else:
            parameter = model.get_parameter(name)
            getattr(parameter, "weight_loader", lambda target, value: target.data.copy_(value))(parameter, tensor)


@pytest.mark.parametrize("tp", [1, 2])
def test_each_rank_reads_its_part(serve, tp):
    tensors = checkpoint()
    (serve.root / "m").mkdir()
    save_file(tensors, serve.root / "m" / "model.safetensors")
    server = serve()
    for rank in range(tp):
        local, remote = Double(rank, tp), Double(rank, tp)
        load_local(local, tensors)
        before = bytes_of(server, "tensors:read") + bytes_of(server, "boxes.bin")
        tensord.nano_vllm.load_model(remote, url_of(server, "m"))
        sent = bytes_of(server, "tensors:read") + bytes_of(server, "boxes.bin") - before
        for (name, want), got in zip(local.named_parameters(), remote.parameters()):
            assert torch.equal(got, want), name
        assert sent == sum(parameter.nbytes for parameter in local.parameters())


def test_a_tensor_without_a_parameter_is_an_error(serve):
    (serve.root / "m").mkdir()
    save_file({**checkpoint(), "extra.weight": torch.ones(2)}, serve.root / "m" / "model.safetensors")
    with pytest.raises(AttributeError, match="extra"):
        tensord.nano_vllm.load_model(Double(0, 1), url_of(serve(), "m"))
