"""``llm-bench view``: look at runs in a browser, from a server on this machine or from one page that needs none."""
