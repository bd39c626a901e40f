"""vLLM's API server, with a main module that imports nothing: ``python -m algo.serving.vllm_program OPTIONS``.

vLLM spawns its engine, and a spawned Python imports the main module again: of vLLM itself, that is the whole API
server, a sixth of the time to start on CPU. Options are those of ``vllm serve``.
"""

if __name__ == "__main__":
    from vllm.entrypoints.launchers.api_server.entry import main

    main()
