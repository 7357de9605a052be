"""Recording of SGLang's pool of pages and of the prefix cache over it, which are judged as a store."""
