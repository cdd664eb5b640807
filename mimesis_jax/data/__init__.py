"""Conversations from files to training batches: loaders, role swap, tfds datasets, the pipeline."""
