"""An agent of the OpenAI Agents SDK that is an HTTP service, in an environment without any of our packages."""
