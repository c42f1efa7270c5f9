"""Launches whose blocks do not fit the GPU together run, with a part of them in host memory. Bits are compared with a run that had enough memory."""

import unittest

import pause_test  # its runner

MIB = pause_test.MIB

BEGIN = """
import hashlib
torch.manual_seed(0)
def digest(tensors):
    return hashlib.sha256(b"".join(tensor.detach().cpu().contiguous().numpy().tobytes() for tensor in tensors)).hexdigest()
def answer(tensors, losses):
    one = spillway.stats()["devices"][0]
    print(json.dumps([digest(tensors), [float(loss).hex() for loss in losses], one["reached_launches"], one["spilled_bytes"]]))
"""

# An add of three maps of 57 MiB, where the budget leaves 134 MiB for blocks.
U_NET = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.down = torch.nn.Conv2d(4, 24, 3, padding=1)
        self.middle = torch.nn.Conv2d(24, 24, 3, padding=1, stride=4)
        self.up = torch.nn.Upsample(scale_factor=4)
        self.out = torch.nn.Conv2d(24, 1, 3, padding=1)
    def forward(self, x):
        skip = torch.relu(self.down(x))
        return self.out(skip + self.up(torch.relu(self.middle(skip))))
net = Net().cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
x = torch.randn(1, 4, 768, 768).cuda()
losses = []
for step in range(2):
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
answer(net.parameters(), losses)
"""

# A table of 96 MiB, its gradient and Adam's two moments, where the budget leaves 64 MiB for blocks. (SparseAdam's kernels are not among the
# stand-in's.)
EMBEDDING = """
table = torch.nn.Embedding(6 * 1024, 4096).cuda()
optimizer = torch.optim.Adam(table.parameters(), lr=0.01)
generator = torch.Generator().manual_seed(1)
losses = []
for step in range(3):
    rows = torch.randint(0, 6 * 1024, (64,), generator=generator).cuda()
    loss = table(rows).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
answer(table.parameters(), losses)
"""

# Logits of 80 MiB, and their softmax and gradient; 64 MiB for blocks.
LOGITS = """
head = torch.nn.Linear(32, 20 * 1024, bias=False).cuda()
optimizer = torch.optim.AdamW(head.parameters(), lr=0.01)
x, y = torch.randn(1024, 32).cuda(), torch.randint(0, 20 * 1024, (1024,)).cuda()
losses = []
for step in range(2):
    loss = torch.nn.functional.cross_entropy(head(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
answer(head.parameters(), losses)
"""

GRAPH = """
tensors = [filled(i) for i in range(7)]
def step():
    for one, next in zip(tensors, tensors[1:] + tensors[:1]):
        one.add_(next).remainder_(1024)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    step()
for _ in range(3):
    graph.replay()
answer(tensors, [])
"""


def run(code, memory, **variables):
    return pause_test.run(BEGIN + code, memory=memory, **{"SPILLWAY_HOST_MEMORY": "2GiB", **variables})


class ReachTest(unittest.TestCase):
    def compare(self, code, budget):
        whole = run(code, "3GiB")
        small = run(code, "3GiB", SPILLWAY_GPU_MEMORY=budget)
        self.assertEqual(whole[:2], small[:2])
        self.assertEqual(whole[2], 0)
        self.assertGreater(small[2], 0, "no launch reached host memory")
        return small

    def test_the_add_of_a_u_net_that_names_more_than_the_budget(self):
        self.compare(U_NET, "150MiB")

    def test_an_embedding_larger_than_the_budget(self):
        self.compare(EMBEDDING, "80MiB")

    def test_logits_larger_than_the_budget(self):
        self.compare(LOGITS, "80MiB")

    def test_a_graph_of_more_than_the_budget_replays(self):
        self.compare(GRAPH, "112MiB")

    def test_a_tensor_larger_than_the_budget_is_refused_without_it(self):
        code = """
found = attempt(lambda: float(torch.full((25 << 20,), 2.0, device="cuda").max()))
print(json.dumps(found))
"""
        self.assertEqual(pause_test.run(code, SPILLWAY_GPU_MEMORY="80MiB"), 2.0)
        self.assertEqual(pause_test.run(code, SPILLWAY_GPU_MEMORY="80MiB", SPILLWAY_REACH="off")[0], "OutOfMemoryError")


if __name__ == "__main__":
    unittest.main()
