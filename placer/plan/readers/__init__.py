"""One module per format that tells what an engine built."""
