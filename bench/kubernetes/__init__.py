"""Rows K: the operator and admission."""
