"""vLLM's API server, with a main module that imports no vLLM: ``python -m algo.serving.vllm_program OPTIONS``.

vLLM spawns its engine, and a spawned Python imports the main module again: of vLLM itself, that is the whole API
server, a sixth of the time to start on CPU. Options are those of ``vllm serve``.
"""

import runpy

if __name__ == "__main__":
    # By its oldest name, which every release that we install has; the main module stays this one.
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
