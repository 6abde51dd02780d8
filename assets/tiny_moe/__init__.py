"""The tiny real mixture-of-experts model: corpus, training, export, evaluation; run by hand, never in CI."""
