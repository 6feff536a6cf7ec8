"""The demo target: a tiny multimodal model of our own and its OpenAI-compatible server."""
