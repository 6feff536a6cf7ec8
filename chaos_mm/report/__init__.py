"""A run's folder -> HTML, Markdown, JUnit, summary.json: pure, nothing is asked of any point."""
