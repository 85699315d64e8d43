"""Side by side with other libraries: one table a file, see docs/benchmarks.md."""
