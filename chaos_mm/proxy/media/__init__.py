"""Media codecs: decode a part for a fault, and write it back in its own format with its own quality and metadata."""
