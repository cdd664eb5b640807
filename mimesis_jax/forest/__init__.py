"""forest: packing of segment trees into fixed-shape arrays, in depth-first order."""
