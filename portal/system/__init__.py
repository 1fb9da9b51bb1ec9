"""The operator's page *System*: observations of the installation, rules that judge them, and diagnostics."""
