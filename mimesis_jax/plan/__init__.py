"""What a configuration costs on machines that nobody holds yet: memory, traffic, time."""
