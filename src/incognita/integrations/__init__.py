"""Our metrics inside the training loops of others: torchmetrics and Lightning.

Each module imports its library, which is an extra; import the module that you need:

    from incognita.integrations.torchmetrics import OpenSetDetection, UnknownRanking
    from incognita.integrations.lightning import UnknownMonitor
"""
