"""The engine: gradient steps on sampled rows, by the compiled kernel or by numpy."""
