"""chat: text to tokens and back; one renderer for training and for sampling."""
