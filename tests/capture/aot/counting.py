"""The reference: what AOTAutograd passes to a counting compiler, under torch.compile and on real values."""

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func

from torchport.structure import tensors_in


def counted(model, *, backward):
    """Return the names of the ops in each graph that the compiler receives, as `(direction, names)`."""
    graphs = []

    def compiler(direction):
        def compile_graph(graph_module, _):
            names = [str(node.target) for node in graph_module.graph.nodes if node.op == "call_function"]
            graphs.append((direction, sorted(names)))
            return make_boxed_func(graph_module.forward)

        return compile_graph

    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=compiler("fw"), bw_compiler=compiler("bw"))
    compiled = torch.compile(model.module, backend=backend)
    with torch.set_grad_enabled(backward):
        result = compiled(*model.args, **model.kwargs)
        if backward:
            outputs = [tensor for _, tensor in tensors_in(result) if tensor.requires_grad]
            torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])
    torch._dynamo.reset()
    return graphs
