"""Which method works for my classifier? A network is trained here in seconds; take your own.

python examples/my_classifier.py writes my_classifier.html.
"""

import numpy as np
import torch
from torch import nn

import incognita

benchmark = incognita.load_benchmark("digits/standard")  # digits 0 to 6; 7 to 9 are unknown

torch.manual_seed(0)
network = nn.Sequential(
    *(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 7)),
)
train = benchmark.train
pixels = np.stack([train.load(index) for index in range(len(train.image_ids))])
images = torch.tensor(pixels).permute(0, 3, 1, 2) / 255
labels = torch.tensor(train.labels)
optimizer = torch.optim.Adam(network.parameters(), lr=0.003)
for _ in range(40):
    optimizer.zero_grad()
    nn.functional.cross_entropy(network(images), labels).backward()
    optimizer.step()

# Features and the linear head are found by running the network; only the pixels must be stated.
report = incognita.evaluate(
    network.eval(), benchmark, "msp, energy, knn, mds, react", preprocess="none", name="my network"
)
print(report)
report.save_html("my_classifier.html")
