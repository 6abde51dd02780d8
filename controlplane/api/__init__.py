"""HTTP only: parse, call one service, answer."""
