"""The advisor's rules: figures and configuration in, advice with its evidence out. Plain Python.

`figures` reads samples and distributions, `outcome` is what a rule may say (advice, fine, or cannot say),
`batching` and `engine` hold the rules, `rulebook` asks all of them."""
