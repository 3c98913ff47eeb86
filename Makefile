# Inflight on one machine. All of it is in deploy/local; `make help` says what there is.
.PHONY: study help up worker status down test test-full rolling chaos scaling rollback hosts lint lock
.DEFAULT_GOAL := help

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(firstword $(MAKEFILE_LIST))

up: ## Set up what is missing and start everything (DETACH=1 returns when ready, PORT=9000, WAIT=web)
	@sh deploy/local/launch.sh up

status: ## Show what runs
	@sh deploy/local/launch.sh status

down: ## Stop everything, servers too (KEEP_SERVING=1 leaves them serving)
	@sh deploy/local/launch.sh down

test: ## Set up and run all the checks and tests (15 minutes on two cores)
	@sh deploy/local/launch.sh test

test-full: ## The same and the long ones
	@sh deploy/local/launch.sh test-full

rolling: ## 100 rolling updates under 8 running streams (UPDATES=5, STREAMS=8)
	@sh deploy/local/launch.sh rolling

chaos: ## Break one part after the other under 16 running streams, and print the table (STREAMS=16, ONLY=redis)
	@sh deploy/local/launch.sh chaos

scaling: ## A deployment that follows its load, asleep and awake again, under running streams (3 minutes)
	@sh deploy/local/launch.sh scaling

rollback: ## How quickly a change that cannot serve is taken back, under running streams (2 minutes)
	@sh deploy/local/launch.sh rollback

hosts: ## Three hosts as three homes: join by token, a store, doors, a roll-out from host to host (5 minutes)
	@sh deploy/local/launch.sh hosts

worker: ## Start this host's workers of an installation elsewhere; the page of the fleet makes the command that joins
	@sh deploy/local/launch.sh worker

lint: ## Formatting, lint, types, layers and migrations
	@sh deploy/local/launch.sh lint

lock: ## Write requirements/*.lock anew from pyproject.toml (UPGRADE=1 for newest releases)
	@sh deploy/local/launch.sh lock

.PHONY: tune
tune: ## Tune a deployment of the running home, apply its winner (10 trials, after make up)
	@.venv/bin/python -m benchmarks.tune

study: ## Compare the batching strategies on the demo engine, with intervals (10 minutes; FULL=1 sweeps, after make up once)
	@.venv/bin/python -m benchmarks.study
