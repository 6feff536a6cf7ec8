"""The adapter for models of Hugging Face transformers, in whatever Python process serves them."""
